/* SPDX-License-Identifier: MIT */
/* What the library of other_allocator.c has beside malloc and its kin. */
#include <stdbool.h>
#include <stddef.h>

void *take(size_t size);
void give(void *memory);

/* How many blocks of take's came back. */
long returned(void);
