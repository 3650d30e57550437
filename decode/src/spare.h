/* SPDX-License-Identifier: MIT */
/*
 * The image that a space left behind, to become the next one's.
 *
 * libipt looks at all sections of an image for each that is added to it. A program that writes its code as it runs (a
 * Java virtual machine's patches it) has thousands of sections, and thousands of spaces that differ in one or two of
 * them. An image cannot lose a section, but what is added takes the place of what lies there: where all that the next
 * space does not have any more lies below what is new in it, that alone is added. Not thread-safe.
 */
#ifndef PTD_SPARE_H
#define PTD_SPARE_H

#include "rounds.h"

struct ptd_spare {
    struct ptd_round *round; /* NULL: there is none */
    struct pt_image *image;
    int32_t *sections; /* ascending */
    size_t count;
};

/* Keep an image of the round, and its sections (from malloc), in place of what was kept. Both are the spare's now. */
void ptd_spare_keep(struct ptd_spare *spare, struct ptd_round *round, struct pt_image *image, int32_t *sections,
                    size_t count);

/* The image, changed to one of these sections (ascending); NULL: it cannot be changed to that with little. */
struct pt_image *ptd_spare_take(struct ptd_spare *spare, struct ptd_images *images, const int32_t *sections,
                                size_t count);

/* Free what is kept. */
void ptd_spare_deinit(struct ptd_spare *spare);

#endif
