/* SPDX-License-Identifier: MIT */
/* What images.c and spaces.c have in common: which spaces are mapped. */
#ifndef PTD_IMAGES_INNER_H
#define PTD_IMAGES_INNER_H

#include "images.h"
#include "rounds.h"
#include "spare.h"

/* A place in the list of spaces that are mapped; the list itself is one, too. */
struct ptd_mapped {
    struct ptd_mapped *before, *next;
};

/* Where an image of `count` sections is to be made. NULL: out of memory. */
struct ptd_round *ptd_images_round(struct ptd_images *images, const int32_t *sections, size_t count);

/* Whether a round is the one images are made in. */
bool ptd_images_is_current(const struct ptd_images *images, const struct ptd_round *round);

struct ptd_mapped *ptd_images_mapped(struct ptd_images *images);

/* What was mapped last of the spaces that are gone; of the current round. */
struct ptd_spare *ptd_images_spare(struct ptd_images *images);

/* Images stay for those who use them, whoever is destroyed first. */
void ptd_images_keep(struct ptd_images *images);
void ptd_images_release(struct ptd_images *images);

/* Unmap spaces nobody uses. */
void ptd_spaces_unmap_idle(struct ptd_mapped *list);

#endif
