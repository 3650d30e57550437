/* SPDX-License-Identifier: MIT */
/*
 * The untracked heap: few blocks, powers of two, under one lock. A header of 16 bytes says which power; a free block
 * holds the address of the next.
 */
#define _GNU_SOURCE
#include "heap.h"

#include "shared_lock.h"
#include "slots.h"

enum { LEAST = 6, POWERS = 34, HEADER = 64 };

struct header {
	uint64_t power;
	uint64_t offset; /* from the block's beginning to what the caller has; aligned blocks only */
};

#define heads ((uint64_t *)PTW_META_OPEN_HEADS)

void *ptw_open_take(size_t size)
{
	uint64_t power = LEAST, block;
	if (size > PTW_OPEN_SIZE / 2)
		return NULL;
	while ((1ull << power) < size + HEADER)
		power++;
	ptw_lock(&ptw_shared->open_lock);
	block = heads[power];
	if (block) {
		heads[power] = *(uint64_t *)(block + HEADER - 8);
	} else if (ptw_shared->open_used + (1ull << power) <= PTW_OPEN_SIZE) {
		block = PTW_OPEN_HEAP + ptw_shared->open_used;
		ptw_shared->open_used += 1ull << power;
	}
	ptw_unlock(&ptw_shared->open_lock);
	if (!block)
		return NULL;
	((struct header *)block)->power = power;
	return (void *)(block + HEADER);
}

void ptw_open_give(void *block)
{
	uint64_t start = (uint64_t)block - HEADER;
	uint64_t power = ((struct header *)start)->power;
	if (power < LEAST || power >= POWERS)
		return;
	ptw_lock(&ptw_shared->open_lock);
	*(uint64_t *)(start + HEADER - 8) = heads[power];
	heads[power] = start;
	ptw_unlock(&ptw_shared->open_lock);
}

size_t ptw_open_size(const void *block)
{
	return (1ull << ((const struct header *)((uint64_t)block - HEADER))->power) - HEADER;
}
