/* SPDX-License-Identifier: MIT */
/* A heap of threads; see evl_heap.h. */
#include "evl_heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static bool before(const struct evl_due *a, const struct evl_due *b)
{
	return a->key != b->key ? a->key < b->key : a->thread < b->thread;
}

int evl_heap_push(struct evl_heap *heap, struct evl_due due)
{
	if (heap->count == heap->capacity) {
		uint32_t capacity = heap->capacity ? heap->capacity * 2 : 64;
		struct evl_due *dues = realloc(heap->dues, capacity * sizeof *dues);
		if (!dues)
			return -ENOMEM;
		heap->dues = dues;
		heap->capacity = capacity;
	}
	uint32_t at = heap->count++;
	while (at && before(&due, &heap->dues[(at - 1) / 2])) {
		heap->dues[at] = heap->dues[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->dues[at] = due;
	return 0;
}

void evl_heap_pop(struct evl_heap *heap)
{
	struct evl_due last = heap->dues[--heap->count];
	uint32_t at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && before(&heap->dues[child + 1], &heap->dues[child]))
			child++;
		if (!before(&heap->dues[child], &last))
			break;
		heap->dues[at] = heap->dues[child];
		at = child;
	}
	if (heap->count)
		heap->dues[at] = last;
}

void evl_heap_deinit(struct evl_heap *heap)
{
	free(heap->dues);
	*heap = (struct evl_heap){0};
}
