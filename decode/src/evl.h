/* SPDX-License-Identifier: MIT */
/*
 * Event lists of a run to thunks with vector clocks, and to accesses of memory.
 *
 * All threads are read together, each in its own order, interleaved by time, so that an acquire comes after the
 * releases it saw. What it waits for is exact (versions, serials); time only decides who goes next. A release that
 * never comes (its record was lost) is given up once every other thread is `slack` ticks beyond the end of the operation
 * that waits for it, and counted.
 *
 * Thunk k of thread i has clock[i] = k + 1. A release publishes the clock of what came before it: thunk k of i happens
 * before thunk m of j exactly when clock(j, m)[i] > k.
 *
 * Memory: a buffer and some rows for each thread, objects and clocks, pages that are open, some distinct call stacks;
 * nothing grows with the length of a list but the number of distinct objects. Not thread-safe. Errors are negative errno.
 */
#ifndef PTW_EVL_H
#define PTW_EVL_H

#include <stdint.h>

enum {
	EVL_ACQUIRE = 1,
	EVL_RELEASE = 2,
};

/* TSC to ns, as ptweave.data.manifest.Clocks does it. */
struct evl_clocks {
	uint64_t tsc0, tsc1;
	int64_t t0, t1;
};

/* Rows of one thread, in order. Offsets have rows + 1 elements. Stacks are numbered, as evl_stacks.h says. Valid until
 * the next call. */
struct evl_batch {
	int32_t thread;
	uint32_t rows;
	const int32_t *thunk;
	const uint16_t *operation;
	const uint8_t *flags;
	const uint64_t *object;
	const int64_t *result;
	const int64_t *t;
	const int64_t *wait;
	const uint64_t *tsc;
	const uint64_t *marker;
	const int32_t *clock_offsets;
	const uint32_t *clock;
	const int32_t *stack; /* numbers, -1: of none */
	uint32_t new_stacks;  /* stacks that no batch before had, of any thread, in the order of their numbers */
	const uint32_t *new_offsets;
	const uint64_t *new_words; /* stack i of them is new_words[new_offsets[i]] on, innermost frame first */
};

/* Accesses of one thread: `rows` records in order, the first of them its `first`-th, and `pages` pages in no order that
 * are known to have been open: from the record that opened each (page_record) in thunk page_thunk to thunk page_until,
 * INT32_MAX: to the end. Valid until the next call. */
struct evl_accesses {
	int32_t thread;
	uint32_t rows;
	int64_t first;
	const int32_t *thunk;
	const uint16_t *operation;
	const uint64_t *tsc;
	const int64_t *t;
	const uint64_t *address;
	const uint64_t *argument;
	const int64_t *result;
	const int32_t *run_offsets; /* of a commit: the bytes it changed, offset in the page | length << 16 */
	const uint32_t *run;
	const int32_t *stack_offsets;
	const uint64_t *stack;
	uint32_t pages;
	const int64_t *page_record;
	const uint64_t *page;
	const int32_t *page_thunk;
	const int32_t *page_until;
	const uint8_t *page_write;
};

/* What a batch holds. */
enum {
	EVL_THUNKS = 1,
	EVL_ACCESSES = 2,
};

struct evl_counts {
	uint64_t rows;
	uint64_t unfinished; /* records that were never finished */
	uint64_t corrupt;    /* records that contradict themselves */
	uint64_t unread;     /* bytes after which nothing could be made of the rest of a list */
	uint64_t lost;       /* records that had no room when they were logged */
	uint64_t missing;    /* waits for a release, create or end that is not in the lists */
	uint64_t accesses;   /* records of accesses; `rows` are thunks */
	uint64_t inexact;    /* acquires of a version that was not kept: a later one was taken */
};

struct evl_decoder;

/* `slack` is in ticks. NULL without memory. */
struct evl_decoder *evl_decoder_create(const struct evl_clocks *clocks, uint64_t slack);
void evl_decoder_destroy(struct evl_decoder *decoder);

/* Add a thread's list; threads must be added in ascending order, all before the first evl_decoder_next. */
int evl_decoder_add(struct evl_decoder *decoder, const char *path, int32_t thread);

/* The next batch: EVL_THUNKS into *ret, EVL_ACCESSES into *ret_accesses, or 0 at the end. */
int evl_decoder_next(struct evl_decoder *decoder, struct evl_batch *ret, struct evl_accesses *ret_accesses);

void evl_decoder_counts(const struct evl_decoder *decoder, struct evl_counts *ret);

/* What one thread's list held: the index is the order of adding. */
void evl_decoder_thread_counts(const struct evl_decoder *decoder, uint32_t index, struct evl_counts *ret);

#endif
