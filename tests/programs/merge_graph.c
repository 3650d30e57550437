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
	uint32_t values[THREADS * THUNKS * THREADS];
	int64_t begin[THREADS];
	int32_t count[THREADS];
	int32_t width[THREADS];
	struct ptm_span spans[SPANS];
	uint32_t runs[RUNS];
	struct ptm_clocks clocks;
};

static void make_clocks(struct made *made)
{
	int64_t at = 0;

	for (int32_t i = 0; i < THREADS; i++) {
		made->begin[i] = at;
		made->count[i] = (int32_t)below(THUNKS + 1);
		made->width[i] = (int32_t)below(THREADS + 1);
		for (int32_t k = 0; k < made->count[i] * made->width[i]; k++) /* mostly growing, sometimes anything */
			made->values[at++] = below(20) ? below((uint32_t)(k / made->width[i]) + 2) : (uint32_t)any();
	}
	made->clocks = (struct ptm_clocks){ made->values, made->begin, made->count, made->width, THREADS, 0 };
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
