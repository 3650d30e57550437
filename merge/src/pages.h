/* SPDX-License-Identifier: MIT */
/*
 * Large tables: those that are read at random lie on huge pages where the system has them. Those that are written from
 * their begin on do not: where memory is a virtual machine's, whose host takes back what lies free, a huge page is mostly
 * one that the host has to bring first, and took up to five times as long to get as the same memory in small pages.
 */
#ifndef PTWEAVE_MERGE_PAGES_H
#define PTWEAVE_MERGE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Ask for huge pages in memory that was not written yet; what is too small for one, or has none, goes on as it is. */
static inline void pages_hint(void *memory, size_t size)
{
	const uintptr_t page = 1 << 21;
	const uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1), end = ((uintptr_t)memory + size) & ~(page - 1);

	if (begin < end)
		(void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

enum { PAGES_SMALL = 1 << 21 };

/* Zeros that cost nothing until they are written, the first `scattered` bytes of which are read at random; NULL: there are
 * none. */
static inline void *pages_take(size_t size, size_t scattered)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	pages_hint(memory, scattered);
	return memory;
}

/* All of them read at random, but for who needs few: that one is not made to pay for many. */
static inline void *pages_reserve(size_t size)
{
	void *memory = pages_take(size, 0);

	if (memory && size > PAGES_SMALL)
		pages_hint((char *)memory + PAGES_SMALL, size - PAGES_SMALL);
	return memory;
}

/* More of them, with what is written in `memory`, which is gone; NULL: there are none, and `memory` stays. Copied: the
 * kernel lets no mapping grow of which only a part is hinted at. */
static inline void *pages_more(void *memory, size_t size, size_t wanted)
{
	void *more = pages_reserve(wanted);

	if (!more)
		return NULL;
	memcpy(more, memory, size);
	munmap(memory, size);
	return more;
}

/* `memory` may be NULL. */
static inline void pages_drop(void *memory, size_t size)
{
	if (memory)
		munmap(memory, size);
}

#endif
