/* SPDX-License-Identifier: MIT */
/* Large tables that are read at random: on huge pages where the system has them. */
#ifndef PTWEAVE_MERGE_PAGES_H
#define PTWEAVE_MERGE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Ask for huge pages in memory that was not written yet; what is too small for one, or has none, goes on as it is. */
static inline void pages_hint(void *memory, size_t size)
{
	const uintptr_t page = 1 << 21;
	const uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1), end = ((uintptr_t)memory + size) & ~(page - 1);

	if (begin < end)
		(void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

/* Zeros; NULL: there are none. */
static inline void *pages_take(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	pages_hint(memory, size);
	return memory;
}

/* `memory` may be NULL. */
static inline void pages_drop(void *memory, size_t size)
{
	if (memory)
		munmap(memory, size);
}

#endif
