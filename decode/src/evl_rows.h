/* SPDX-License-Identifier: MIT */
/* A thread's rows on their way out: columns that grow, and are handed out and emptied as a batch. */
#ifndef PTW_EVL_ROWS_H
#define PTW_EVL_ROWS_H

#include "evl.h"
#include "evl_clock.h"
#include "evl_stacks.h"

struct evl_row {
	int32_t thunk;
	uint16_t operation;
	uint8_t flags;
	uint64_t object;
	int64_t result, t, wait;
	uint64_t tsc, marker;
};

struct evl_rows {
	uint32_t rows, capacity;
	uint64_t clocks, clock_capacity;
	uint64_t held; /* bytes of stacks that its rows named first */
	int32_t *thunk;
	uint16_t *operation;
	uint8_t *flags;
	uint64_t *object, *tsc, *marker;
	int64_t *result, *t, *wait;
	int32_t *stack, *clock_offsets;
	uint32_t *clock;
};

void evl_rows_deinit(struct evl_rows *rows);

/* Append a row; `numbers` gives the thread number of each clock component, ascending. Its stack is numbered. */
int evl_rows_add(struct evl_rows *rows, const struct evl_row *row, const struct evl_vector *clock,
		 const int32_t *numbers, struct evl_stacks *stacks, const unsigned char *stack, unsigned frames);

uint64_t evl_rows_bytes(const struct evl_rows *rows);
void evl_rows_batch(struct evl_rows *rows, int32_t thread, struct evl_batch *ret);
void evl_rows_clear(struct evl_rows *rows);

#endif
