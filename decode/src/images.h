/* SPDX-License-Identifier: MIT */
/* Sections of code files and the address spaces made of them; see api.h for who owns what. */
#ifndef PTD_IMAGES_H
#define PTD_IMAGES_H

#include "api.h"

#include <intel-pt.h>

/* Bytes of a file. */
struct ptd_stretch {
    uint32_t file;
    uint64_t offset;
    uint64_t size;
    uint32_t round; /* libipt uses it `uses` times in that one; 0: never yet */
    uint32_t uses;
};

/* A stretch at an address: file offset = ip - address + offset. */
struct ptd_section {
    int32_t image;
    uint32_t stretch;
    uint64_t offset;
    uint64_t address;
    uint32_t round; /* libipt has it as `isid` in that one; 0: never yet */
    int isid;
};

/* The section of that number; NULL when there is none. It moves when others are added. */
struct ptd_section *ptd_images_section(const struct ptd_images *images, int32_t number);

/* A section's stretch, and the name of its file. */
struct ptd_stretch *ptd_images_stretch(const struct ptd_images *images, const struct ptd_section *section);
const char *ptd_images_path(const struct ptd_images *images, const struct ptd_stretch *stretch);

/*
 * What the path decoder remembers of the code of a space, or of one that had it all; made when there is none. What was
 * asked for before may be gone by that. NULL: out of memory.
 */
struct ptd_steps *ptd_images_steps(struct ptd_images *images, const struct ptd_space *space);

/* The sections of a space, ascending; they live as long as it does. */
const int32_t *ptd_space_sections(const struct ptd_space *space, size_t *count);

struct ptd_images *ptd_space_images(const struct ptd_space *space);

/*
 * Map a space's code. It stays until it is left as often as it was used; what comes after that is for spaces that are
 * used again soon. Returns 0 or negative errno: -EIO when a file is not there any more.
 */
int ptd_space_use(struct ptd_space *space);
void ptd_space_leave(struct ptd_space *space);

/* ---- of spaces in use ---- */

struct pt_image *ptd_space_image(const struct ptd_space *space);

/* The space's instruction walker. */
struct ptd_walker *ptd_space_walker(struct ptd_space *space);

/* Our number of the section libipt calls `isid`; -1: none. */
int32_t ptd_space_section(const struct ptd_space *space, int isid);

/* Spaces of the same round have the same isids; never 0. */
uint32_t ptd_space_round(const struct ptd_space *space);

#endif
