/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what the program may do with a page (mmap, mprotect, munmap), one byte each, for all threads. Zero is
 * what most pages have: to be read and written, or as the mapped file they belong to.
 *
 * Signal-safe. That the pages concerned are closed where they are open is for ptw_pages_limit (pages.h).
 */
#ifndef PTW_LIMITS_H
#define PTW_LIMITS_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PTW_LIMITED = 0x80,         /* the low bits are its PROT_READ, PROT_WRITE, PROT_EXEC */
	PTW_UNMAPPED = 0x80 | 0x40, /* there is nothing */
	PTW_OVERLAID = 0x80 | 0x20, /* a file is mapped over it (files.h), or was: the place is not given out again */
};

#define ptw_limits ((uint8_t *)PTW_META_LIMIT)

/* Its protection, or `otherwise` when it has none of its own. */
static inline int ptw_limit_or(uint32_t page, int otherwise)
{
	uint8_t limit = ptw_limits[page];
	return limit & PTW_LIMITED ? limit & (PROT_READ | PROT_WRITE | PROT_EXEC) : otherwise;
}

static inline bool ptw_limit_is_unmapped(uint32_t page) { return (ptw_limits[page] & PTW_UNMAPPED) == PTW_UNMAPPED; }

static inline bool ptw_limit_is_overlaid(uint32_t page) { return (ptw_limits[page] & PTW_OVERLAID) == PTW_OVERLAID; }

/* As for any other page. What was never set costs no memory; what is many pages gives theirs back. */
static inline void ptw_limits_clear(uint32_t page, uint32_t count)
{
	uint64_t first = (uint64_t)(ptw_limits + page), end = first + count;
	uint64_t from = (first + PTW_PAGE - 1) & ~(PTW_PAGE - 1), to = end & ~(PTW_PAGE - 1);
	if (to > from && PTW_SYS(SYS_madvise, from, to - from, MADV_REMOVE, 0, 0, 0) == 0) {
		memset((void *)first, 0, from - first);
		memset((void *)to, 0, end - to);
	} else {
		memset((void *)first, 0, count);
	}
}

#endif
