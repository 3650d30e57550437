/* SPDX-License-Identifier: MIT */
/* A thread's rows on their way out: columns that grow, and are handed out and emptied as a batch. */
#ifndef PTW_EVL_ROWS_H
#define PTW_EVL_ROWS_H

#include "evl.h"
#include "evl_clock.h"

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
	uint64_t clocks, clock_capacity, stacks, stack_capacity;
	int32_t *thunk;
	uint16_t *operation;
	uint8_t *flags;
	uint64_t *object, *tsc, *marker, *stack;
	int64_t *result, *t, *wait;
	int32_t *clock_offsets, *stack_offsets;
	uint32_t *clock;
};

void evl_rows_deinit(struct evl_rows *rows);

/* Append a row; `numbers` gives the thread number of each clock component, ascending. */
int evl_rows_add(struct evl_rows *rows, const struct evl_row *row, const struct evl_vector *clock,
		 const int32_t *numbers, const unsigned char *stack, unsigned frames);

uint64_t evl_rows_bytes(const struct evl_rows *rows);
void evl_rows_batch(struct evl_rows *rows, int32_t thread, struct evl_batch *ret);
void evl_rows_clear(struct evl_rows *rows);

#endif
