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

struct pt_image *ptd_space_image(const struct ptd_space *space);
const struct ptd_images *ptd_space_images(const struct ptd_space *space);

/* The space's instruction walker. */
struct ptd_walker *ptd_space_walker(struct ptd_space *space);

#endif
