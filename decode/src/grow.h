/* SPDX-License-Identifier: MIT */
/* Growing one column of a table held in parallel arrays. The caller owns the memory; thread-safe: nothing is kept. */
#ifndef PTD_GROW_H
#define PTD_GROW_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/* `column` is the address of a pointer from malloc: room for `capacity` elements of `width` bytes. 0 or -ENOMEM. */
static inline int ptd_grow(void *column, size_t capacity, size_t width)
{
    void **memory = column;
    void *larger = realloc(*memory, capacity * width);
    if (!larger)
        return -ENOMEM;
    *memory = larger;
    return 0;
}

#endif
