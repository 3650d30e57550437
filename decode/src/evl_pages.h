/* SPDX-License-Identifier: MIT */
/*
 * A thread's accesses of memory: the records as they are, and from when to when each page was open.
 *
 * A page is open for reading, for writing, or both, from the record that opened it to one that closes it, to the next
 * record that opens it in the same way, or to the thread's end. Its row comes when that is known.
 *
 * Memory: what is open, and the rows that were not fetched. Beyond EVL_OPEN_MAX open pages the row comes at once and
 * says that the page stays open (EVL_TO_THE_END). Not thread-safe. Errors are negative errno.
 */
#ifndef PTW_EVL_PAGES_H
#define PTW_EVL_PAGES_H

#include "evl.h"
#include "evl_file.h"

#include <stdbool.h>

enum {
	EVL_PAGE = 4096,
	EVL_WINDOW_MAX = 1024,     /* pages one record may open: more than libtthread ever does */
	EVL_OPEN_MAX = 1 << 24,    /* 64 GiB */
	EVL_TO_THE_END = INT32_MAX,
};

/* A page that is open: since which record and thunk, for reading [0] and for writing [1]. */
struct evl_open {
	uint64_t page;
	int64_t record[2]; /* −1: it is not */
	int32_t thunk[2];
};

struct evl_pages {
	struct evl_open *open; /* dense, in no order */
	uint32_t *slots;       /* open addressing: index in `open` + 1, 0 free */
	uint32_t count, capacity, slot_count;
	int64_t records; /* ever taken */
	int64_t first;   /* ordinal of the first record's row */

	uint32_t rows, row_capacity; /* records */
	uint64_t stacks, stack_capacity, runs, run_capacity;
	int32_t *thunk, *stack_offsets, *run_offsets;
	uint32_t *run;
	uint16_t *operation;
	uint64_t *tsc, *address, *argument, *stack;
	int64_t *t, *result;

	uint32_t spans, span_capacity; /* pages and from when to when they were open */
	int64_t *span_record;
	uint64_t *span_page;
	int32_t *span_thunk, *span_until;
	uint8_t *span_write;
};

void evl_pages_deinit(struct evl_pages *pages);

/* Whether a record of an access makes sense. */
bool evl_pages_valid(const struct evl_record *record);

/* Take a valid record, made in `thunk`. */
int evl_pages_take(struct evl_pages *pages, const struct evl_record *record, int32_t thunk, int64_t t);

/* Close everything: the thread, or the program it ran, ends in `thunk`. */
int evl_pages_end(struct evl_pages *pages, int32_t thunk);

uint64_t evl_pages_bytes(const struct evl_pages *pages);
void evl_pages_batch(const struct evl_pages *pages, int32_t thread, struct evl_accesses *ret);
void evl_pages_clear(struct evl_pages *pages);

#endif
