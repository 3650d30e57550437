/* SPDX-License-Identifier: MIT */
/* A binary heap of threads by the time they are due. Entries are not removed: an old one has an old stamp. */
#ifndef PTW_EVL_HEAP_H
#define PTW_EVL_HEAP_H

#include <stdint.h>

struct evl_due {
	uint64_t key;
	uint32_t thread, stamp;
};

struct evl_heap {
	struct evl_due *dues;
	uint32_t count, capacity;
};

/* 0, or -ENOMEM. */
int evl_heap_push(struct evl_heap *heap, struct evl_due due);

/* Remove the earliest. */
void evl_heap_pop(struct evl_heap *heap);

void evl_heap_deinit(struct evl_heap *heap);

#endif
