/* SPDX-License-Identifier: MIT */
/* Rows of a timeline, merged from threads that are each in order; timeline_api.h says what is guaranteed. */
#include "timeline_api.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* Times within it have differences that are numbers, too. */
static const int64_t TIME_LIMIT = INT64_MAX / 2;

/* A row that is next of its thread's, or of those that are known. */
struct head {
	int64_t begin;
	int64_t end;
	int32_t thread;
	uint32_t row;
	const uint32_t *next; /* rows behind it */
	const uint32_t *last;
};

static bool is_in_order(const struct ptm_doings *doings, size_t i)
{
	const bool next = i + 1 < doings->n && doings->thread[i + 1] == doings->thread[i];

	return doings->called[i] >= -TIME_LIMIT && doings->called[i] <= doings->returned[i] &&
	       doings->returned[i] <= doings->ended[i] && doings->ended[i] <= TIME_LIMIT &&
	       (!next || doings->ended[i] <= doings->called[i + 1]);
}

static bool is_near(int64_t time)
{
	return time >= -TIME_LIMIT && time <= TIME_LIMIT;
}

static inline int64_t begin_of(const struct ptm_doings *doings, size_t row)
{
	return row & 1 ? doings->returned[row / 2] : doings->called[row / 2];
}

static inline int64_t end_of(const struct ptm_doings *doings, size_t row)
{
	return row & 1 ? doings->ended[row / 2] : doings->returned[row / 2];
}

/*
 * The rows of one thread, thunks `first` up to `end`, in order, into their elements of `own`. One after the other they
 * begin later, or at the same time, and end later, or at the same time: of those that begin together the last alone may
 * take time, and comes first.
 */
static void order_thread(const struct ptm_doings *doings, size_t first, size_t end, uint32_t *own)
{
	uint32_t *order = own + 2 * first;
	size_t row = 2 * first;

	while (row < 2 * end) {
		const int64_t begin = begin_of(doings, row);
		size_t last = row;

		while (last + 1 < 2 * end && begin_of(doings, last + 1) == begin)
			last++;
		const bool takes_time = end_of(doings, last) > begin;

		if (takes_time)
			*order++ = (uint32_t)last;
		for (; row < last; row++)
			*order++ = (uint32_t)row;
		if (!takes_time)
			*order++ = (uint32_t)last;
		row = last + 1;
	}
}

static bool is_before(const struct head *a, const struct head *b)
{
	if (a->begin != b->begin)
		return a->begin < b->begin;
	if (a->thread != b->thread)
		return a->thread < b->thread;
	if (a->end != b->end)
		return a->end > b->end;
	return a->row < b->row;
}

static void read_head(struct head *head, const struct ptm_doings *doings, const struct ptm_others *others)
{
	const uint32_t row = *head->next++;
	const size_t thunk = row / 2;

	head->row = row;
	if (thunk >= doings->n) {
		head->begin = others->begin[row - 2 * doings->n];
		head->end = others->end[row - 2 * doings->n];
		head->thread = others->thread[row - 2 * doings->n];
		return;
	}
	head->begin = begin_of(doings, row);
	head->end = end_of(doings, row);
	head->thread = doings->thread[thunk];
}

static void sift_down(struct head *heads, size_t n, size_t at)
{
	const struct head moved = heads[at];

	for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
		if (child + 1 < n && is_before(&heads[child + 1], &heads[child]))
			child++;
		if (!is_before(&heads[child], &moved))
			break;
		heads[at] = heads[child];
		at = child;
	}
	heads[at] = moved;
}

static void merge(struct head *heads, size_t n, const struct ptm_doings *doings, const struct ptm_others *others,
		  uint32_t *order)
{
	for (size_t i = 0; i < n; i++)
		read_head(&heads[i], doings, others);
	for (size_t i = n / 2; i-- > 0;)
		sift_down(heads, n, i);
	while (n) {
		*order++ = heads[0].row;
		if (heads[0].next < heads[0].last)
			read_head(&heads[0], doings, others);
		else
			heads[0] = heads[--n];
		if (n)
			sift_down(heads, n, 0);
	}
}

static size_t threads_of(const struct ptm_doings *doings)
{
	size_t n = 0;

	for (size_t i = 0; i < doings->n; i++)
		n += !i || doings->thread[i] != doings->thread[i - 1];
	return n;
}

/* Order each thread's rows, in `own`, and begin to read them. Returns how many threads there are. */
static size_t order_threads(const struct ptm_doings *doings, uint32_t *own, struct head *heads)
{
	size_t n = 0;

	for (size_t first = 0, end; first < doings->n; first = end) {
		end = first + 1;
		while (end < doings->n && doings->thread[end] == doings->thread[first])
			end++;
		order_thread(doings, first, end, own);
		heads[n++] = (struct head){.next = own + 2 * first, .last = own + 2 * end};
	}
	return n;
}

int ptm_timeline_order(const struct ptm_doings *doings, const struct ptm_others *others, uint32_t *order)
{
	struct head *heads;
	uint32_t *own;
	size_t n;
	int ret = -ENOMEM;

	if (doings->n > UINT32_MAX / 4 || others->n > UINT32_MAX / 2)
		return -E2BIG;
	for (size_t i = 0; i < doings->n; i++)
		if (!is_in_order(doings, i))
			return -EINVAL;
	for (size_t i = 0; i < others->n; i++)
		if (!is_near(others->begin[i]) || !is_near(others->end[i]))
			return -EINVAL;
	heads = malloc((threads_of(doings) + 1) * sizeof(*heads));
	own = malloc((2 * doings->n + others->n + 1) * sizeof(*own));
	if (heads && own) {
		n = order_threads(doings, own, heads);
		for (size_t i = 0; i < others->n; i++)
			own[2 * doings->n + i] = (uint32_t)(2 * doings->n + i);
		if (others->n) {
			heads[n].next = own + 2 * doings->n;
			heads[n].last = own + 2 * doings->n + others->n;
			n++;
		}
		merge(heads, n, doings, others, order);
		ret = 0;
	}
	free(heads);
	free(own);
	return ret;
}

static inline void set_bit(uint8_t *bits, size_t i)
{
	bits[i / 8] |= (uint8_t)(1U << i % 8);
}

static void put_thunk(const struct ptm_doings *doings, const struct ptm_texts *texts, size_t row,
		      const struct ptm_timeline *ret, size_t i)
{
	const size_t from = row / 2;
	const bool runs = row & 1;

	ret->begin[i] = runs ? doings->returned[from] : doings->called[from];
	ret->end[i] = runs ? doings->ended[from] : doings->returned[from];
	ret->thread[i] = doings->thread[from];
	ret->thunk[i] = doings->thunk[from];
	set_bit(ret->with_thunk, i);
	ret->function[i] = doings->function[from];
	ret->object[i] = 0;
	if (runs) {
		ret->what[i] = texts->run;
		ret->detail[i] = texts->no_detail;
		ret->variable[i] = texts->no_variable;
		return;
	}
	ret->what[i] = doings->thunk[from] ? texts->operation : texts->begin;
	ret->detail[i] = doings->operation[from];
	ret->variable[i] = doings->variable[from];
	if (doings->with_object[from]) {
		ret->object[i] = doings->object[from];
		set_bit(ret->with_object, i);
	}
}

static void put_other(const struct ptm_others *others, const struct ptm_texts *texts, size_t from,
		      const struct ptm_timeline *ret, size_t i)
{
	ret->begin[i] = others->begin[from];
	ret->end[i] = others->end[from];
	ret->thread[i] = others->thread[from];
	ret->thunk[i] = 0;
	ret->function[i] = texts->no_function;
	ret->variable[i] = texts->no_variable;
	ret->object[i] = 0;
	ret->what[i] = others->what[from];
	ret->detail[i] = others->detail[from];
}

void ptm_timeline_rows(const struct ptm_doings *doings, const struct ptm_others *others, const struct ptm_texts *texts,
		       const uint32_t *order, size_t n, const struct ptm_timeline *ret)
{
	for (size_t i = 0; i < n; i++) {
		if (order[i] / 2 < doings->n)
			put_thunk(doings, texts, order[i], ret, i);
		else
			put_other(others, texts, order[i] - 2 * doings->n, ret, i);
		ret->ns[i] = ret->end[i] - ret->begin[i];
	}
}
