/* SPDX-License-Identifier: MIT */
/* Large memory that is read at random, on huge pages where the system has them. Thread-safe: nothing is kept. */
#ifndef PTD_HUGE_H
#define PTD_HUGE_H

#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PTD_HUGE_PAGE = 1 << 21 };

/* Ask for huge pages in so much memory; what does not want them, or has none, goes on as it is. */
static inline void ptd_huge(void *memory, size_t size)
{
    uintptr_t begin = ((uintptr_t)memory + PTD_HUGE_PAGE - 1) & ~(uintptr_t)(PTD_HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(PTD_HUGE_PAGE - 1);
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

/* Memory of `size` bytes, a power of two of at least 64, that begins with a cache line. NULL: there is none. */
static inline void *ptd_huge_alloc(size_t size)
{
    void *memory = aligned_alloc(size < PTD_HUGE_PAGE ? 64 : PTD_HUGE_PAGE, size);
    if (memory)
        ptd_huge(memory, size);
    return memory;
}

#endif
