/* SPDX-License-Identifier: MIT */
/* Sections of code files and the address spaces made of them; see api.h for who owns what. */
#ifndef PTD_IMAGES_H
#define PTD_IMAGES_H

#include "api.h"

#include <intel-pt.h>

/* Where a section's bytes come from: file offset = ip - address + offset. */
struct ptd_section {
    int32_t image;
    uint64_t offset;
    uint64_t address;
};

/* The section libipt calls `isid`; NULL when there is none. */
const struct ptd_section *ptd_images_section(const struct ptd_images *images, int isid);

/* The sections of a space, ascending; they live as long as it does. */
const int32_t *ptd_space_sections(const struct ptd_space *space, size_t *count);

/*
 * What the path decoder remembers of the code of a space, or of one that had it all; made when there is none. What was
 * asked for before may be gone by that. NULL: out of memory.
 */
struct ptd_steps *ptd_images_steps(struct ptd_images *images, const struct ptd_space *space);

struct pt_image *ptd_space_image(const struct ptd_space *space);
struct ptd_images *ptd_space_images(const struct ptd_space *space);

/* The space's instruction walker. */
struct ptd_walker *ptd_space_walker(struct ptd_space *space);

#endif
