/* SPDX-License-Identifier: MIT */
/* A graph as its parts use it: clocks, what was found, and room that is kept from page to page. Freed by
 * ptm_graph_destroy. Not thread-safe. */
#ifndef PTWEAVE_MERGE_GRAPH_H
#define PTWEAVE_MERGE_GRAPH_H

#include <stdbool.h>

#include "graph_api.h"

enum { GRAPH_PAGE = 4096, GRAPH_NONE = -1 };

/* A growing array; `items` is freed by whoever owns it. */
struct room {
	void *items;
	size_t bytes;
};

/* Make room for `n` items of `size` bytes: 0 or -ENOMEM. What was there is kept. */
int room_reach(struct room *room, size_t n, size_t size);

struct ptm_graph {
	const struct ptm_clocks *clocks;
	struct room edges;      /* struct ptm_edge */
	size_t n_edges;
	struct room runs;       /* uint32_t, of the edges */
	size_t n_runs;
	struct room races;      /* struct ptm_race */
	size_t n_races;
	struct room scratch[4]; /* of one page or thunk; each part names those it uses, of items of its own */
};

/* The clock of a thunk, as numbers of its chunks. */
struct clock_row {
	const uint32_t *index;
	int32_t width;
};

/* Of thunk `thunk` of `thread`, which must exist. */
static inline struct clock_row graph_row(const struct ptm_clocks *clocks, int32_t thread, int32_t thunk)
{
	int32_t low = clocks->block[thread], high = clocks->block[thread + 1] - 1;

	while (low < high) {
		const int32_t middle = high - (high - low) / 2;

		if (clocks->blocks[middle].first <= thunk)
			low = middle;
		else
			high = middle - 1;
	}
	const struct ptm_clock_block *block = &clocks->blocks[low];

	return (struct clock_row){ clocks->index + block->begin + (int64_t)(thunk - block->first) * block->width,
				   block->width };
}

/* Component `of` of the clock of thunk `thunk` of `thread`. Both must exist, and be of two threads. */
static inline uint32_t graph_clock(const struct ptm_graph *graph, int32_t thread, int32_t thunk, int32_t of)
{
	const struct ptm_clocks *clocks = graph->clocks;
	const struct clock_row row = graph_row(clocks, thread, thunk);
	const int32_t at = of >> clocks->shift;

	if (at >= row.width)
		return 0;
	return clocks->chunks[((size_t)row.index[at] << clocks->shift) + (size_t)(of - (at << clocks->shift))];
}

/* Thunk `thunk` of `thread` happens before thunk `later` of another (or a later one of the same) thread. */
static inline bool graph_before(const struct ptm_graph *graph, int32_t thread, int32_t thunk, int32_t other,
				int32_t later)
{
	if (thread == other)
		return thunk < later;
	return graph_clock(graph, other, later, thread) > (uint32_t)thunk;
}

/* The last thunk of `of` that a thunk of `thread` knows of; GRAPH_NONE none. */
static inline int32_t graph_known(const struct ptm_graph *graph, int32_t thread, int32_t thunk, int32_t of)
{
	const uint32_t seen = of == thread ? (uint32_t)thunk : graph_clock(graph, thread, thunk, of);
	const int32_t count = graph->clocks->count[of];

	return seen > (uint32_t)count ? count - 1 : (int32_t)seen - 1;
}

/* The first thunk of `thread` in (after, upto] that knows of more than thunk `of_thunk - 1` of `of`, so of `of_thunk`;
 * GRAPH_NONE none. */
int32_t graph_first_to_know(const struct ptm_graph *graph, int32_t thread, int32_t after, int32_t upto, int32_t of,
			    int32_t of_thunk);

int graph_put_edge(struct ptm_graph *graph, const struct ptm_edge *edge);
int graph_put_run(struct ptm_graph *graph, uint32_t run);
int graph_put_race(struct ptm_graph *graph, const struct ptm_race *race);

/* All spans of one page. */
struct page {
	const struct ptm_span *spans;
	size_t n;
	const uint32_t *runs;
};

/* The last thunk of a span that there is. */
static inline int32_t graph_end(const struct ptm_graph *graph, const struct ptm_span *span)
{
	const int32_t count = graph->clocks->count[span->thread];

	return span->until < count ? span->until : count - 1;
}

/* The next reader from span *at on: spans of one thread that overlap are one, as of a page open for reading, and from some
 * thunk on for writing. So readers of one thread follow each other. False at the end. */
bool graph_next_reader(const struct ptm_graph *graph, const struct page *page, size_t *at, struct ptm_span *ret);

/* Edges of a page by its last writers; by byte where spans know them. */
int graph_flow(struct ptm_graph *graph, const struct page *page);
int graph_flow_bytes(struct ptm_graph *graph, const struct page *page);
int graph_races(struct ptm_graph *graph, const struct page *page);

#endif
