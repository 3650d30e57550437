/* SPDX-License-Identifier: MIT */
/*
 * What libipt has of a run's code at a time: a cache of sections, and images made of them.
 *
 * libipt counts the sections of a cache, and the uses of each, in 16 bits, and lets go of none. A trace of a processor on
 * which thousands of processes took turns needs more. So a round is over when it has much, and the next one begins with
 * nothing. Numbers libipt calls sections by (isid) are a round's own. Not thread-safe.
 */
#ifndef PTD_ROUNDS_H
#define PTD_ROUNDS_H

#include "images.h"

#include <intel-pt.h>
#include <stdbool.h>

struct ptd_round;

/* The round after another, which is over; NULL: the first. NULL: out of memory. */
struct ptd_round *ptd_round_create(const struct ptd_round *before);
void ptd_round_destroy(struct ptd_round *round);

uint32_t ptd_round_number(const struct ptd_round *round);

/* Images that were made in it and in those before it. */
uint64_t ptd_round_made(const struct ptd_round *round);

/* Whether there is no room for an image of `count` sections of `images`; there always is for the first. */
bool ptd_round_is_over(const struct ptd_round *round, const struct ptd_images *images, const int32_t *sections,
                       size_t count);

/* Make an image. Returns 0 or libipt's error. */
int ptd_round_make(struct ptd_round *round, struct ptd_images *images, const int32_t *sections, size_t count,
                   struct pt_image **ret);

/* Add sections to an image of the round, in place of what lies there. Returns 0 or libipt's error; the image is good for
 * nothing then. */
int ptd_round_add(struct ptd_round *round, struct ptd_images *images, const int32_t *sections, size_t count,
                  struct pt_image *image);

/* Free an image of the round. */
void ptd_round_drop(struct ptd_round *round, struct pt_image *image);

/* Images that are left. */
size_t ptd_round_images(const struct ptd_round *round);

/* Our number of the section libipt calls `isid`, -1: none. */
int32_t ptd_round_section(const struct ptd_round *round, int isid);

#endif
