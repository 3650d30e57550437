/* SPDX-License-Identifier: MIT */
/* Descriptors kept from the program; kept_files.h says what is guaranteed. */
#define _GNU_SOURCE
#include "kept_files.h"

#define KEPT ((uint64_t *)PTW_META_KEPT)

_Static_assert(PTW_KEPT_FILES / 8 <= PTW_META_KEPT_SIZE, "fits");

static bool in_table(int fd) { return fd >= 0 && fd < PTW_KEPT_FILES; }

void ptw_kept_add(int fd)
{
	if (in_table(fd))
		__atomic_fetch_or(&KEPT[fd / 64], 1ull << fd % 64, __ATOMIC_RELAXED);
}

void ptw_kept_drop(int fd)
{
	if (in_table(fd))
		__atomic_fetch_and(&KEPT[fd / 64], ~(1ull << fd % 64), __ATOMIC_RELAXED);
}

bool ptw_kept_has(int fd)
{
	return in_table(fd) && (__atomic_load_n(&KEPT[fd / 64], __ATOMIC_RELAXED) >> fd % 64 & 1);
}

static unsigned first_kept(unsigned from)
{
	for (; from < PTW_KEPT_FILES; from++) {
		uint64_t rest = __atomic_load_n(&KEPT[from / 64], __ATOMIC_RELAXED) >> from % 64;
		if (rest)
			return from + (unsigned)__builtin_ctzll(rest);
		from |= 63;
	}
	return UINT32_MAX;
}

long ptw_kept_close_range(unsigned first, unsigned last, unsigned flags,
			  long (*close_part)(unsigned first, unsigned last, unsigned flags))
{
	if (first > last)
		return close_part(first, last, flags); /* it says what is wrong with that */
	for (;;) {
		unsigned kept = first_kept(first);
		if (kept > last)
			return close_part(first, last, flags);
		long result = kept > first ? close_part(first, kept - 1, flags) : 0;
		if (result < 0 || kept == last)
			return result;
		first = kept + 1;
	}
}
