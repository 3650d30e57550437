/* SPDX-License-Identifier: MIT */
/* The graph's life, synchronisation, and the way through pages; graph_api.h says what is guaranteed. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>

int room_reach(struct room *room, size_t n, size_t size)
{
	size_t bytes = room->bytes ? room->bytes : 4096;
	void *items;

	if (n > SIZE_MAX / 2 / size)
		return -ENOMEM;
	if (n * size <= room->bytes)
		return 0;
	while (bytes < n * size)
		bytes *= 2;
	items = realloc(room->items, bytes);
	if (!items)
		return -ENOMEM;
	room->items = items;
	room->bytes = bytes;
	return 0;
}

int ptm_graph_create(const struct ptm_clocks *clocks, struct ptm_graph **ret)
{
	struct ptm_graph *graph;

	if (clocks->shift < 0 || clocks->shift > 16)
		return -EINVAL;
	for (int32_t i = 0; i < clocks->threads; i++)
		if (clocks->count[i] < 0 || (clocks->count[i] > 0) > clocks->block[i + 1] - clocks->block[i])
			return -EINVAL;
	graph = calloc(1, sizeof(*graph));
	if (!graph)
		return -ENOMEM;
	graph->clocks = clocks;
	*ret = graph;
	return 0;
}

void ptm_graph_destroy(struct ptm_graph *graph)
{
	if (!graph)
		return;
	free(graph->edges.items);
	free(graph->runs.items);
	free(graph->races.items);
	for (size_t i = 0; i < sizeof(graph->scratch) / sizeof(graph->scratch[0]); i++)
		free(graph->scratch[i].items);
	free(graph);
}

const struct ptm_edge *ptm_graph_edges(struct ptm_graph *graph, size_t *ret, const uint32_t **ret_runs,
				       size_t *ret_n_runs)
{
	*ret = graph->n_edges;
	*ret_runs = graph->runs.items;
	*ret_n_runs = graph->n_runs;
	graph->n_edges = graph->n_runs = 0;
	return graph->edges.items;
}

const struct ptm_race *ptm_graph_races(struct ptm_graph *graph, size_t *ret)
{
	*ret = graph->n_races;
	graph->n_races = 0;
	return graph->races.items;
}

int graph_put_edge(struct ptm_graph *graph, const struct ptm_edge *edge)
{
	if (room_reach(&graph->edges, graph->n_edges + 1, sizeof(*edge)) < 0)
		return -ENOMEM;
	((struct ptm_edge *)graph->edges.items)[graph->n_edges++] = *edge;
	return 0;
}

int graph_put_run(struct ptm_graph *graph, uint32_t run)
{
	if (room_reach(&graph->runs, graph->n_runs + 1, sizeof(run)) < 0)
		return -ENOMEM;
	((uint32_t *)graph->runs.items)[graph->n_runs++] = run;
	return 0;
}

int graph_put_race(struct ptm_graph *graph, const struct ptm_race *race)
{
	if (room_reach(&graph->races, graph->n_races + 1, sizeof(*race)) < 0)
		return -ENOMEM;
	((struct ptm_race *)graph->races.items)[graph->n_races++] = *race;
	return 0;
}

int32_t graph_first_to_know(const struct ptm_graph *graph, int32_t thread, int32_t after, int32_t upto, int32_t of,
			    int32_t of_thunk)
{
	int32_t low = after + 1, high = upto;

	if (low > high || graph_known(graph, thread, high, of) < of_thunk)
		return GRAPH_NONE;
	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (graph_known(graph, thread, middle, of) >= of_thunk)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* --- synchronisation --------------------------------------------------------------------------------------------- */

/* What a thunk came to know of thread `of`: the last thunk it knows of, if the thunk before it did not. */
static int32_t learned(const struct ptm_graph *graph, int32_t thread, int32_t thunk, int32_t of)
{
	const int32_t now = graph_known(graph, thread, thunk, of);
	const int32_t before = thunk ? graph_known(graph, thread, thunk - 1, of) : GRAPH_NONE;

	return now > before ? now : GRAPH_NONE;
}

struct learned {
	int32_t of, last;
};

/* All of it, without what the thread knows of itself: how many threads, or -ENOMEM. They are in scratch[0]. */
static int64_t learn(struct ptm_graph *graph, int32_t thread, int32_t thunk)
{
	const struct ptm_clocks *clocks = graph->clocks;
	const struct clock_row now = graph_row(clocks, thread, thunk);
	const struct clock_row before = thunk ? graph_row(clocks, thread, thunk - 1) : (struct clock_row){ NULL, 0 };
	int64_t n = 0;

	for (int32_t at = 0; at < now.width; at++) {
		if (now.index[at] == (at < before.width ? before.index[at] : 0))
			continue;
		for (int32_t i = 0; i < 1 << clocks->shift; i++) {
			const int32_t of = (at << clocks->shift) + i;
			const int32_t last = of < clocks->threads && of != thread ?
				learned(graph, thread, thunk, of) : GRAPH_NONE;

			if (last == GRAPH_NONE)
				continue;
			if (room_reach(&graph->scratch[0], (size_t)n + 1, sizeof(struct learned)) < 0)
				return -ENOMEM;
			((struct learned *)graph->scratch[0].items)[n++] = (struct learned){ of, last };
		}
	}
	return n;
}

static int sync_thunk(struct ptm_graph *graph, int32_t thread, int32_t thunk)
{
	const int64_t n = learn(graph, thread, thunk);
	const struct learned *learned = graph->scratch[0].items;

	if (n < 0)
		return (int)n;
	for (int64_t i = 0; i < n; i++) {
		bool through = false; /* it is known only through another thread, which is known, too */
		int error;

		for (int64_t j = 0; j < n && !through; j++)
			through = j != i && graph_before(graph, learned[i].of, learned[i].last, learned[j].of,
							 learned[j].last);
		if (through)
			continue;
		error = graph_put_edge(graph, &(struct ptm_edge){
			.from_thread = learned[i].of, .from_thunk = learned[i].last, .from_until = learned[i].last,
			.to_thread = thread, .to_thunk = thunk, .to_until = thunk });
		if (error)
			return error;
	}
	return 0;
}

int ptm_graph_sync(struct ptm_graph *graph, int32_t thread, const uint8_t *acquire, int32_t first, size_t n)
{
	if (thread < 0 || thread >= graph->clocks->threads || first < 0 || first > graph->clocks->count[thread] ||
	    n > (size_t)(graph->clocks->count[thread] - first))
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		const int error = acquire[i] ? sync_thunk(graph, thread, first + (int32_t)i) : 0;

		if (error)
			return error;
	}
	return 0;
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

static bool valid(const struct ptm_graph *graph, const struct ptm_span *span, size_t n_runs)
{
	return span->thread >= 0 && span->thread < graph->clocks->threads && span->first >= 0 &&
	       span->until >= span->first && span->run >= 0 && (size_t)span->run <= n_runs &&
	       span->runs <= n_runs - (size_t)span->run;
}

static bool same_page(const struct ptm_span *a, const struct ptm_span *b)
{
	return a->page == b->page && a->program == b->program;
}

static bool runs_fit(const struct ptm_span *span, const uint32_t *runs)
{
	for (uint32_t i = 0; i < span->runs; i++) {
		const uint32_t run = runs[span->run + i];

		if ((run & 0xffff) + (run >> 16) > GRAPH_PAGE)
			return false;
	}
	return true;
}

bool graph_next_reader(const struct ptm_graph *graph, const struct page *page, size_t *at, struct ptm_span *ret)
{
	while (*at < page->n && page->spans[*at].runs)
		++*at;
	if (*at == page->n)
		return false;
	*ret = page->spans[*at];
	ret->until = graph_end(graph, ret);
	for (++*at; *at < page->n; ++*at) {
		const struct ptm_span *next = &page->spans[*at];
		const int32_t end = graph_end(graph, next);

		if (next->runs)
			continue;
		if (next->thread != ret->thread || next->first > ret->until)
			break;
		if (end > ret->until)
			ret->until = end;
	}
	return true;
}

/* One page: nothing to find where one thread alone, in one thunk alone, was. */
static int one_page(struct ptm_graph *graph, const struct page *page)
{
	bool bytes = false, writes = false, shared = false;
	int error;

	for (size_t i = 0; i < page->n; i++) {
		bytes |= page->spans[i].runs != 0;
		writes |= page->spans[i].runs || page->spans[i].flags & PTM_SPAN_WRITES;
		shared |= page->spans[i].thread != page->spans[0].thread;
	}
	if (!writes)
		return 0;
	error = bytes ? graph_flow_bytes(graph, page) : graph_flow(graph, page);
	return error || !shared ? error : graph_races(graph, page);
}

int ptm_graph_pages(struct ptm_graph *graph, const struct ptm_span *spans, size_t n, const uint32_t *runs,
		    size_t n_runs)
{
	for (size_t first = 0, end; first < n; first = end) {
		struct page page;
		int error;

		for (end = first; end < n && same_page(&spans[first], &spans[end]); end++) {
			const struct ptm_span *span = &spans[end];

			if (!valid(graph, span, n_runs) || !runs_fit(span, runs) ||
			    span->first >= graph->clocks->count[span->thread])
				return -EINVAL;
		}
		page = (struct page){ .spans = spans + first, .n = end - first, .runs = runs };
		error = one_page(graph, &page);
		if (error)
			return error;
	}
	return 0;
}
