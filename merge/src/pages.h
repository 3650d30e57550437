/* SPDX-License-Identifier: MIT */
/* Large tables that are read at random: on huge pages where the system has them. */
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

/* Zeros that cost nothing until they are written; NULL: there are none. */
static inline void *pages_reserve(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	if (size > PAGES_SMALL) /* who needs little is not made to pay for much */
		pages_hint((char *)memory + PAGES_SMALL, size - PAGES_SMALL);
	return memory;
}

/* The same, all of it on huge pages. */
static inline void *pages_take(size_t size)
{
	void *memory = pages_reserve(size);

	if (memory)
		pages_hint(memory, size);
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
