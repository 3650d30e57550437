/* SPDX-License-Identifier: MIT */
/* Rows; see evl_rows.h. */
#include "evl_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void evl_rows_deinit(struct evl_rows *rows)
{
	void *columns[] = {rows->thunk, rows->operation, rows->flags, rows->object, rows->tsc, rows->marker, rows->stack,
			   rows->result, rows->t, rows->wait, rows->clock_offsets, rows->clock};
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
		free(columns[i]);
	*rows = (struct evl_rows){0};
}

static int reach(void *column, uint64_t count, size_t size)
{
	void **place = column;
	void *grown = realloc(*place, count * size);
	if (!grown)
		return -ENOMEM;
	*place = grown;
	return 0;
}

static int grow(struct evl_rows *rows)
{
	uint32_t n = rows->capacity ? rows->capacity * 2 : 64;
	if (reach(&rows->thunk, n, sizeof *rows->thunk) || reach(&rows->operation, n, sizeof *rows->operation) ||
	    reach(&rows->flags, n, sizeof *rows->flags) || reach(&rows->object, n, sizeof *rows->object) ||
	    reach(&rows->tsc, n, sizeof *rows->tsc) || reach(&rows->marker, n, sizeof *rows->marker) ||
	    reach(&rows->result, n, sizeof *rows->result) || reach(&rows->t, n, sizeof *rows->t) ||
	    reach(&rows->wait, n, sizeof *rows->wait) ||
	    reach(&rows->stack, n, sizeof *rows->stack) ||
	    reach(&rows->clock_offsets, n + 1, sizeof *rows->clock_offsets))
		return -ENOMEM;
	rows->capacity = n;
	return 0;
}

static int reserve(struct evl_rows *rows, uint64_t clocks)
{
	if (rows->clocks + clocks > rows->clock_capacity) {
		uint64_t n = (rows->clocks + clocks) * 2 + 64;
		if (reach(&rows->clock, n, sizeof *rows->clock))
			return -ENOMEM;
		rows->clock_capacity = n;
	}
	return 0;
}

int evl_rows_add(struct evl_rows *rows, const struct evl_row *row, const struct evl_vector *clock,
		 const int32_t *numbers, struct evl_stacks *stacks, const unsigned char *stack, unsigned frames)
{
	uint32_t used = clock->length;
	while (used > 0 && clock->value[used - 1] == 0)
		used--;
	uint64_t width = used ? (uint64_t)numbers[used - 1] + 1 : 0;
	if ((rows->rows == rows->capacity && grow(rows) < 0) || reserve(rows, width) < 0)
		return -ENOMEM;
	const int new = evl_stacks_number(stacks, stack, frames, &rows->stack[rows->rows]);
	if (new < 0)
		return new;
	uint32_t n = rows->rows;
	rows->thunk[n] = row->thunk;
	rows->operation[n] = row->operation;
	rows->flags[n] = row->flags;
	rows->object[n] = row->object;
	rows->result[n] = row->result;
	rows->t[n] = row->t;
	rows->wait[n] = row->wait;
	rows->tsc[n] = row->tsc;
	rows->marker[n] = row->marker;
	rows->clock_offsets[n] = (int32_t)rows->clocks;
	if (width)
		memset(rows->clock + rows->clocks, 0, width * sizeof *rows->clock);
	for (uint32_t i = 0; i < used; i++)
		rows->clock[rows->clocks + (uint32_t)numbers[i]] = clock->value[i];
	rows->clocks += width;
	rows->held += new ? frames * sizeof(uint64_t) : 0;
	rows->rows = n + 1;
	rows->clock_offsets[n + 1] = (int32_t)rows->clocks;
	return 0;
}

uint64_t evl_rows_bytes(const struct evl_rows *rows)
{
	return rows->rows * 72ull + rows->clocks * sizeof *rows->clock + rows->held;
}

void evl_rows_batch(struct evl_rows *rows, int32_t thread, struct evl_batch *ret)
{
	*ret = (struct evl_batch){
		.thread = thread,
		.rows = rows->rows,
		.thunk = rows->thunk,
		.operation = rows->operation,
		.flags = rows->flags,
		.object = rows->object,
		.result = rows->result,
		.t = rows->t,
		.wait = rows->wait,
		.tsc = rows->tsc,
		.marker = rows->marker,
		.clock_offsets = rows->clock_offsets,
		.clock = rows->clock,
		.stack = rows->stack,
	};
}

void evl_rows_clear(struct evl_rows *rows) { rows->rows = 0, rows->clocks = 0, rows->held = 0; }
