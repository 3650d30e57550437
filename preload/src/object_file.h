/* SPDX-License-Identifier: MIT */
/*
 * Which file is mapped where, told by what it begins with: names and inodes may have changed since. Signal-safe.
 */
#ifndef PTW_OBJECT_FILE_H
#define PTW_OBJECT_FILE_H

#include "sys.h"

#include <stdbool.h>

/* As `memcmp(...) == 0`, without a call of the C library. */
static inline bool ptw_same(const void *a, const void *b, uint64_t bytes)
{
	const unsigned char *left = a, *right = b;
	for (uint64_t i = 0; i < bytes; i++)
		if (left[i] != right[i])
			return false;
	return true;
}

/* Is that the file which lies at `base`, and whose dynamic section is at `dynamic`? It takes [low, high) as it is linked,
 * and begins with `bytes` of `begins`. */
static inline bool ptw_is_file(uint64_t base, uint64_t dynamic, uint64_t low, uint64_t high, const void *begins,
			       uint64_t bytes)
{
	unsigned char resident;
	if (dynamic - base < low || dynamic - base >= high ||
	    PTW_SYS(SYS_mincore, (base + low) & ~4095ull, 4096, &resident, 0, 0, 0) != 0)
		return false;
	return ptw_same((const void *)(base + low), begins, bytes);
}

#endif
