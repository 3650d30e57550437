/* SPDX-License-Identifier: MIT */
/*
 * What Python sees of the rows of a timeline: what threads did, in order of time.
 *
 * A thunk makes two rows, its operation (element 2i of the order, for thunk i) and what ran after that, up to the next
 * thunk's operation (2i+1); rows that are known already (system calls, gaps) are the elements from 2n on. Rows are in the
 * order of their beginning, then of the thread, then the longest first, then of thunks.
 *
 * Not thread-safe for one output; nothing is kept between calls. Errors are negative errno values. Indices into texts are
 * passed through, not used.
 *
 * The text between the guards is also the cffi definition: plain declarations only.
 */
#ifndef PTWEAVE_MERGE_TIMELINE_API_H
#define PTWEAVE_MERGE_TIMELINE_API_H

#include <stddef.h>
#include <stdint.h>

/* cdef: begin */

/* Thunks, thread by thread in their order: when each one's operation was called, when it had returned, when what it began
 * ended; the operation, its object, the variable that is, and the function that called it. */
struct ptm_doings {
	size_t n;
	const int32_t *thread;
	const int32_t *thunk;
	const int64_t *called;
	const int64_t *returned;
	const int64_t *ended;
	const uint64_t *object;
	const uint8_t *with_object;
	const int32_t *operation;
	const int32_t *variable;
	const int32_t *function;
};

/* Rows that are known, in the timeline's order. */
struct ptm_others {
	size_t n;
	const int32_t *thread;
	const int64_t *begin;
	const int64_t *end;
	const int32_t *what;
	const int32_t *detail;
};

/* Indices of the texts that rows of thunks have. */
struct ptm_texts {
	int32_t begin;      /* what: of a thread's first thunk */
	int32_t operation;  /* what */
	int32_t run;        /* what */
	int32_t no_detail;
	int32_t no_variable;
	int32_t no_function;
};

/* Columns of rows; the last two are bitmaps, least significant bit first, which must be 0 before. */
struct ptm_timeline {
	int64_t *begin;
	int64_t *end;
	int64_t *ns;
	int32_t *thread;
	int32_t *what;
	int32_t *detail;
	int32_t *thunk;
	uint64_t *object;
	int32_t *variable;
	int32_t *function;
	uint8_t *with_thunk;
	uint8_t *with_object;
};

/* The order of all rows, 2 * doings->n + others->n elements. -EINVAL: a thread's times go back, or are too far apart;
 * -E2BIG: more rows than numbers for them; -ENOMEM. */
int ptm_timeline_order(const struct ptm_doings *doings, const struct ptm_others *others, uint32_t *order);
/* The rows of `n` elements of that order. */
void ptm_timeline_rows(const struct ptm_doings *doings, const struct ptm_others *others, const struct ptm_texts *texts,
		       const uint32_t *order, size_t n, const struct ptm_timeline *ret);

/* cdef: end */

#endif
