/* SPDX-License-Identifier: MIT */
/*
 * Makes graphs of random and hostile clocks and spans under the sanitizers, and checks what must hold of any: edges lead
 * between thunks that there are, runs lie in the page, races are of two threads. Argument: how many graphs.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_api.h"
#include "random.h"

enum { THREADS = 6, THUNKS = 30, SPANS = 120, RUNS = 60 };

struct made {
	uint32_t values[THREADS][THUNKS * THREADS];
	int32_t offsets[THREADS][THUNKS + 1];
	uint32_t chunks[(1 + THREADS * THUNKS * THREADS) * 8];
	uint32_t index[THREADS * THUNKS * THREADS];
	struct ptm_clock_block blocks[THREADS * 2];
	int32_t block[THREADS + 1];
	int32_t count[THREADS];
	struct ptm_span spans[SPANS];
	uint32_t runs[RUNS];
	struct ptm_clocks clocks;
};

/* What a clock says, straight from the rows it was made of. */
static uint32_t said(const struct made *made, int32_t thread, int32_t thunk, int32_t of)
{
	const int32_t *offset = &made->offsets[thread][thunk];

	return of != thread && of < offset[1] - offset[0] ? made->values[thread][offset[0] + of] : 0;
}

/* The same, from the chunks. */
static uint32_t packed(const struct made *made, int32_t thread, int32_t thunk, int32_t of)
{
	const struct ptm_clock_block *block = &made->blocks[made->block[thread]];
	const int32_t shift = made->clocks.shift;

	while (block + 1 < &made->blocks[made->block[thread + 1]] && block[1].first <= thunk)
		block++;
	if (of >> shift >= block->width)
		return 0;
	const int64_t row = block->begin + (int64_t)(thunk - block->first) * block->width;

	return made->chunks[((size_t)made->index[row + (of >> shift)] << shift) + (size_t)(of & ((1 << shift) - 1))];
}

/* Thunks from to until - 1 of a thread into a block, and what that says of them. */
static void put_block(struct made *made, struct ptm_packing *packing, int32_t from, int32_t until, int32_t width,
		      int64_t *at)
{
	const int32_t thread = packing->own, shift = packing->shift;
	int64_t more;

	packing->width = width;
	more = ptm_clocks_pack(packing, &made->offsets[thread][from], made->values[thread], (size_t)(until - from),
			       &made->index[*at], &made->chunks[(size_t)packing->next << shift]);
	assert(more >= 0 && more <= (int64_t)(until - from) * width);
	made->blocks[made->block[thread + 1]++] = (struct ptm_clock_block){ *at, from, width };
	*at += (int64_t)(until - from) * width;
	for (int32_t k = from; k < until; k++)
		for (int32_t of = 0; of < THREADS; of++)
			assert(packed(made, thread, k, of) == (of >> shift < width ? said(made, thread, k, of) : 0));
}

static void make_clocks(struct made *made)
{
	const int32_t shift = (int32_t)below(4), whole = (THREADS + (1 << shift) - 1) >> shift;
	struct ptm_packing packing = { .next = 1, .shift = shift };
	int64_t at = 0;

	memset(made->chunks, 0, sizeof(made->chunks));
	made->clocks = (struct ptm_clocks){ made->chunks, made->index, made->blocks, made->block, made->count, THREADS,
					    shift };
	made->block[0] = 0;
	for (int32_t i = 0; i < THREADS; i++) {
		uint32_t last[THREADS * 8] = { 0 }, numbers[THREADS] = { 0 };
		int32_t length = (int32_t)below(THREADS + 1), cut;

		made->count[i] = (int32_t)below(THUNKS + 1);
		made->offsets[i][0] = 0;
		for (int32_t k = 0; k < made->count[i]; k++) {
			int32_t *offset = &made->offsets[i][k + 1];

			if (!below(10)) /* mostly as long as the one before */
				length = (int32_t)below(THREADS + 1);
			*offset = offset[-1] + length;
			for (int32_t of = 0; of < length; of++) /* mostly growing, sometimes anything */
				made->values[i][offset[-1] + of] = below(20) ? below((uint32_t)k / 4 + 2) : (uint32_t)any();
		}
		packing.last = last;
		packing.at = numbers;
		packing.own = i;
		made->block[i + 1] = made->block[i];
		cut = made->count[i] ? (int32_t)below((uint32_t)made->count[i]) : 0;
		if (cut) /* may be narrower: clocks are cut off there */
			put_block(made, &packing, 0, cut, (int32_t)below((uint32_t)whole) + 1, &at);
		if (cut < made->count[i])
			put_block(made, &packing, cut, made->count[i], whole, &at);
	}
}

static int by_place(const void *left, const void *right)
{
	const struct ptm_span *a = left, *b = right;

	if (a->page != b->page)
		return a->page < b->page ? -1 : 1;
	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->first < b->first ? -1 : a->first > b->first;
}

static size_t make_spans(struct made *made, int hostile)
{
	const size_t n = below(SPANS) + 1;
	const int bytes = (int)below(2);

	for (size_t i = 0; i < RUNS; i++) {
		const uint32_t offset = below(4096);

		made->runs[i] = offset | (below(hostile ? 8192 : 4097 - offset)) << 16;
	}
	for (size_t i = 0; i < n; i++) {
		struct ptm_span *span = &made->spans[i];

		*span = (struct ptm_span){
			.page = 4096 * (1 + below(3)), .address = below(2) ? 4096 + below(4096) : 0, .site = below(4),
			.flags = below(8), .thread = (int32_t)below(THREADS), .run = below(RUNS / 2) };
		span->runs = bytes && below(2) ? below(RUNS / 2) : 0;
		span->first = made->count[span->thread] ? (int32_t)below((uint32_t)made->count[span->thread]) : 0;
		span->until = below(3) ? span->first + (int32_t)below(5) : INT32_MAX;
		if (hostile && !below(20))
			span->thread = (int32_t)any();
		if (hostile && !below(20))
			span->until = (int32_t)any();
		if (hostile && !below(20))
			span->run = (int64_t)any();
	}
	qsort(made->spans, n, sizeof(*made->spans), by_place);
	return n;
}

static void check_edges(struct made *made, struct ptm_graph *graph)
{
	size_t n, n_runs;
	const uint32_t *runs;
	const struct ptm_edge *edges = ptm_graph_edges(graph, &n, &runs, &n_runs);

	for (size_t i = 0; i < n; i++) {
		const struct ptm_edge *edge = &edges[i];

		assert(edge->from_thread >= 0 && edge->from_thread < THREADS && edge->to_thread >= 0 && edge->to_thread < THREADS);
		assert(edge->from_thunk >= 0 && edge->from_until < made->count[edge->from_thread]);
		assert(edge->to_thunk >= 0 && edge->to_thunk <= edge->to_until);
		assert(edge->to_until < made->count[edge->to_thread]);
		assert(edge->run >= 0 && (size_t)edge->run + edge->runs <= n_runs);
		for (uint32_t k = 0; k < edge->runs; k++)
			assert((runs[edge->run + k] & 0xffff) + (runs[edge->run + k] >> 16) <= 4096);
	}
}

static void check_races(struct made *made, struct ptm_graph *graph)
{
	size_t n;
	const struct ptm_race *races = ptm_graph_races(graph, &n);

	for (size_t i = 0; i < n; i++) {
		const struct ptm_race *race = &races[i];

		assert(race->thread[0] != race->thread[1] && (race->wrote[0] || race->wrote[1]) && race->count > 0);
		for (int side = 0; side < 2; side++)
			assert(race->thunk[side] >= 0 && race->thunk[side] < made->count[race->thread[side]]);
	}
}

static void one(struct made *made, int hostile)
{
	struct ptm_graph *graph;
	uint8_t acquire[THUNKS];
	size_t n;
	int error;

	make_clocks(made);
	memset(acquire, 1, sizeof(acquire));
	assert(ptm_graph_create(&made->clocks, &graph) == 0);
	for (int32_t i = 0; i < THREADS; i++)
		assert(ptm_graph_sync(graph, i, acquire, 0, (size_t)made->count[i]) == 0);
	assert(ptm_graph_sync(graph, THREADS, acquire, 0, 0) == -EINVAL);
	assert(ptm_graph_sync(graph, 0, acquire, made->count[0], 1) == -EINVAL);
	assert(ptm_graph_sync(graph, 0, acquire, made->count[0] + 1, 0) == -EINVAL);
	check_edges(made, graph);
	n = make_spans(made, hostile);
	error = ptm_graph_pages(graph, made->spans, n, made->runs, RUNS);
	assert(error == 0 || error == -EINVAL);
	check_edges(made, graph);
	check_races(made, graph);
	ptm_graph_destroy(graph);
}

int main(int argc, char **argv)
{
	const int graphs = argc > 1 ? atoi(argv[1]) : 100;
	struct made *made = malloc(sizeof(*made));

	assert(made);
	for (int i = 0; i < graphs; i++)
		one(made, i % 2);
	ptm_graph_destroy(NULL);
	free(made);
	printf("%d graphs\n", graphs);
	return 0;
}
