/* SPDX-License-Identifier: MIT */
/*
 * Merges timelines of random and hostile thunks under the sanitizers, and checks that each has all of its rows once, in
 * order. Argument: how many.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "timeline_api.h"

enum { THUNKS = 200, OTHERS = 40, ROWS = 2 * THUNKS + OTHERS, BATCH = 37, NO_VARIABLE = 77, TEXTS = 9 };

/* Arrays, each as long as its rows are many: what is beyond is the sanitizer's. */
struct made {
	size_t n, others;
	int32_t *thread, *thunk, *operation, *variable, *function, *other_thread, *what, *detail;
	int64_t *called, *returned, *ended, *begin, *end;
	uint64_t *object;
	uint8_t *with_object;
	uint32_t *order;
};

static void *array(size_t n, size_t size)
{
	void *ret = calloc(n + !n, size);

	assert(ret);
	return ret;
}

static void made_init(struct made *made)
{
	const size_t n = below(THUNKS + 1), others = below(4) ? below(OTHERS + 1) : 0;

	*made = (struct made){
		n, others, array(n, 4), array(n, 4), array(n, 4), array(n, 4), array(n, 4), array(others, 4), array(others, 4),
		array(others, 4), array(n, 8), array(n, 8), array(n, 8), array(others, 8), array(others, 8), array(n, 8),
		array(n, 1), array(2 * n + others, 4)};
}

static void made_deinit(struct made *made)
{
	void *arrays[] = {made->thread, made->thunk, made->operation, made->variable, made->function, made->other_thread,
			  made->what, made->detail, made->called, made->returned, made->ended, made->begin, made->end, made->object,
			  made->with_object, made->order};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		free(arrays[i]);
}

static void make_thunks(struct made *made)
{
	int64_t t = 0;
	int32_t thread = 0, thunk = 0;

	for (size_t i = 0; i < made->n; i++) { /* mostly at the same moment as what was before */
		made->thread[i] = thread;
		made->thunk[i] = thunk++;
		made->called[i] = t;
		made->returned[i] = t += below(3);
		made->ended[i] = t += below(3);
		made->object[i] = any();
		made->with_object[i] = (uint8_t)below(2);
		made->operation[i] = (int32_t)below(TEXTS);
		made->variable[i] = (int32_t)below(TEXTS);
		made->function[i] = (int32_t)below(TEXTS);
		if (!below(20)) {
			thread++;
			thunk = 0;
			t = below(50);
		}
	}
}

static void make_others(struct made *made)
{
	int64_t t = 0;

	for (size_t i = 0; i < made->others; i++) {
		made->begin[i] = t += 1 + below(5);
		made->end[i] = t + below(4);
		made->other_thread[i] = (int32_t)below(6);
		made->what[i] = (int32_t)below(TEXTS);
		made->detail[i] = (int32_t)below(TEXTS);
	}
}

static void spoil(struct made *made)
{
	int64_t *arrays[] = {made->called, made->returned, made->ended, made->begin, made->end};

	for (size_t times = below(4); times--;) {
		const size_t which = below(5), n = which < 3 ? made->n : made->others;

		if (n)
			arrays[which][below((uint32_t)n)] = below(2) ? (int64_t)any() : INT64_MIN + below(2);
	}
	for (size_t i = 0; i < made->n; i++)
		if (!below(10))
			made->thread[i] = (int32_t)any();
}

static int before(int64_t begin, int32_t thread, int64_t end, int64_t next, int32_t next_thread, int64_t next_end)
{
	if (begin != next)
		return begin < next;
	return thread != next_thread ? thread < next_thread : end >= next_end;
}

static void check_row(const struct ptm_doings *doings, const struct ptm_timeline *rows, size_t i, uint32_t row)
{
	const size_t thunk = row / 2;

	assert(rows->ns[i] == rows->end[i] - rows->begin[i]);
	assert((rows->with_thunk[i / 8] >> i % 8 & 1) == (thunk < doings->n));
	if (thunk >= doings->n)
		return;
	assert(rows->thread[i] == doings->thread[thunk] && rows->thunk[i] == doings->thunk[thunk]);
	assert(rows->begin[i] == (row & 1 ? doings->returned : doings->called)[thunk]);
	assert(rows->end[i] == (row & 1 ? doings->ended : doings->returned)[thunk]);
	assert(rows->variable[i] == (row & 1 ? NO_VARIABLE : doings->variable[thunk]));
	assert((rows->with_object[i / 8] >> i % 8 & 1) == (!(row & 1) && doings->with_object[thunk]));
}

/* `sorted`: the others are in order. */
static void check(const struct made *made, const struct ptm_doings *doings, const struct ptm_others *others, int sorted)
{
	const size_t total = 2 * made->n + made->others;
	const struct ptm_texts texts = {0, 1, 2, 3, NO_VARIABLE, 4};
	uint8_t seen[ROWS] = {0};
	int64_t begin = 0, end = 0;
	int32_t thread = 0;

	for (size_t at = 0; at < total; at += BATCH) {
		const size_t n = total - at < BATCH ? total - at : BATCH;
		int64_t begins[BATCH], ends[BATCH], ns[BATCH];
		int32_t threads[BATCH], what[BATCH], detail[BATCH], thunk[BATCH], variable[BATCH], function[BATCH];
		uint64_t object[BATCH];
		uint8_t with_thunk[(BATCH + 7) / 8] = {0}, with_object[(BATCH + 7) / 8] = {0};
		const struct ptm_timeline rows = {begins, ends, ns, threads, what, detail, thunk, object, variable,
						  function, with_thunk, with_object};

		ptm_timeline_rows(doings, others, &texts, made->order + at, n, &rows);
		for (size_t i = 0; i < n; i++) {
			assert(made->order[at + i] < total && !seen[made->order[at + i]]);
			seen[made->order[at + i]] = 1;
			assert(!sorted || !(at + i) ||
			       before(begin, thread, end, begins[i], threads[i], ends[i]));
			begin = begins[i];
			end = ends[i];
			thread = threads[i];
			check_row(doings, &rows, i, made->order[at + i]);
		}
	}
}

static void one(int hostile)
{
	struct made made;
	struct ptm_doings doings;
	struct ptm_others others;
	int error;

	made_init(&made);
	make_thunks(&made);
	make_others(&made);
	if (hostile)
		spoil(&made);
	doings = (struct ptm_doings){made.n, made.thread, made.thunk, made.called, made.returned, made.ended, made.object,
				     made.with_object, made.operation, made.variable, made.function};
	others = (struct ptm_others){made.others, made.other_thread, made.begin, made.end, made.what, made.detail};
	error = ptm_timeline_order(&doings, &others, made.order);
	assert(error == 0 || (hostile && error == -EINVAL));
	if (!error)
		check(&made, &doings, &others, !hostile);
	made_deinit(&made);
}

int main(int argc, char **argv)
{
	const int timelines = argc > 1 ? atoi(argv[1]) : 100;

	for (int i = 0; i < timelines; i++)
		one(i % 2);
	printf("%d timelines\n", timelines);
	return 0;
}
