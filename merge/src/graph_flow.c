/* SPDX-License-Identifier: MIT */
/*
 * Data edges of a page of which only is known who had it open: from its last writers, in happens-before order.
 *
 * Every thread that has the page open may have read it. When it opens it, and whenever it comes to know of more writes
 * while it is open, the writes it knows of that no other known write comes after are edges. What was written before
 * those is reached through them: who writes a page may have read it.
 */
#include "graph.h"

#include <errno.h>
#include <string.h>

enum { WRITERS, WRITES, STATES }; /* rooms of the graph's scratch */

/* From thunk `first` on the page could be written, by this or an earlier span up to thunk `reach`. */
struct write {
	int32_t first;
	int32_t reach;
};

/* A thread that wrote the page: its spans are writes[first, first + n), by first thunk. */
struct writer {
	int32_t thread;
	int32_t n;
	size_t first;
};

/* What one reader knows of a writer: its last write, the span that is of, and the edge for that span. `fresh`: it did
 * not know of it in the thunk before. */
struct state {
	int32_t last;
	int32_t span;
	int32_t edge_span;
	bool fresh;
	size_t edge;
};

struct flow {
	struct ptm_graph *graph;
	const struct page *page;
	struct writer *writers;
	size_t n_writers;
	struct write *writes;
	struct state *states;
};

static int collect_writers(struct flow *flow)
{
	struct ptm_graph *graph = flow->graph;
	size_t n_writes = 0;

	if (room_reach(&graph->scratch[WRITES], flow->page->n, sizeof(struct write)) < 0 ||
	    room_reach(&graph->scratch[WRITERS], flow->page->n, sizeof(struct writer)) < 0 ||
	    room_reach(&graph->scratch[STATES], flow->page->n, sizeof(struct state)) < 0)
		return -ENOMEM;
	flow->writes = graph->scratch[WRITES].items;
	flow->writers = graph->scratch[WRITERS].items;
	flow->states = graph->scratch[STATES].items;
	for (size_t i = 0; i < flow->page->n; i++) {
		const struct ptm_span *span = &flow->page->spans[i];
		struct write *write = &flow->writes[n_writes];
		struct writer *writer = flow->n_writers ? &flow->writers[flow->n_writers - 1] : NULL;

		if (!(span->flags & PTM_SPAN_WRITES))
			continue;
		*write = (struct write){ .first = span->first, .reach = graph_end(graph, span) };
		if (!writer || writer->thread != span->thread) {
			writer = &flow->writers[flow->n_writers++];
			*writer = (struct writer){ .thread = span->thread, .first = n_writes };
		} else if (write[-1].reach > write->reach) {
			write->reach = write[-1].reach;
		}
		writer->n++;
		n_writes++;
	}
	return 0;
}

/* The last of a writer's spans that begins in `thunk` or before; -1 none. */
static int32_t span_at(const struct flow *flow, const struct writer *writer, int32_t thunk)
{
	const struct write *writes = flow->writes + writer->first;
	int32_t low = 0, high = writer->n;

	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (writes[middle].first <= thunk)
			low = middle + 1;
		else
			high = middle;
	}
	return low - 1;
}

/* The last thunk up to `upto` in which the writer may have written the page, and the span that is of. */
static void last_write(const struct flow *flow, const struct writer *writer, int32_t upto, struct state *ret)
{
	const int32_t span = span_at(flow, writer, upto);
	const int32_t reach = span < 0 ? GRAPH_NONE : flow->writes[writer->first + (size_t)span].reach;

	ret->span = span;
	ret->last = reach < upto ? reach : upto;
}

/* The first thunk after `thunk` in which the writer may have written the page; GRAPH_NONE none. */
static int32_t next_write(const struct flow *flow, const struct writer *writer, int32_t thunk)
{
	const int32_t span = span_at(flow, writer, thunk + 1);
	const struct write *writes = flow->writes + writer->first;

	if (span >= 0 && writes[span].reach > thunk)
		return thunk + 1;
	return span + 1 < writer->n ? writes[span + 1].first : GRAPH_NONE;
}

/* Another write that is known, too, comes after the last one of writer `index`. */
static bool overwritten(const struct flow *flow, size_t index)
{
	const int32_t thread = flow->writers[index].thread, last = flow->states[index].last;

	for (size_t i = 0; i < flow->n_writers; i++)
		if (i != index && flow->states[i].last >= 0 &&
		    graph_before(flow->graph, thread, last, flow->writers[i].thread, flow->states[i].last))
			return true;
	return false;
}

/* Writer `index`'s last write is seen in `thunk`: an edge, or more of the one that is there for its span. */
static int see(struct flow *flow, const struct ptm_span *reader, size_t index, int32_t thunk)
{
	struct state *state = &flow->states[index];
	const struct writer *writer = &flow->writers[index];
	struct ptm_edge *edges = flow->graph->edges.items;

	if (state->edge_span == state->span) {
		edges[state->edge].from_until = state->last;
		return 0;
	}
	state->edge_span = state->span;
	state->edge = flow->graph->n_edges;
	return graph_put_edge(flow->graph, &(struct ptm_edge){
		.page = reader->page, .program = reader->program, .from_thread = writer->thread,
		.from_thunk = flow->writes[writer->first + (size_t)state->span].first, .from_until = state->last,
		.to_thread = reader->thread, .to_thunk = thunk, .to_until = reader->until });
}

/* What is known when the page is opened. */
static int open_page(struct flow *flow, const struct ptm_span *reader)
{
	for (size_t i = 0; i < flow->n_writers; i++) {
		const int32_t known = graph_known(flow->graph, reader->thread, reader->first, flow->writers[i].thread);

		flow->states[i].edge_span = GRAPH_NONE;
		last_write(flow, &flow->writers[i], known, &flow->states[i]);
	}
	for (size_t i = 0; i < flow->n_writers; i++) {
		int error = 0;

		if (flow->states[i].last >= 0 && !overwritten(flow, i))
			error = see(flow, reader, i, reader->first);
		if (error)
			return error;
	}
	return 0;
}

/* The next thunk of the reader that knows of a write of another thread that the one before did not; GRAPH_NONE none. */
static int32_t next_news(const struct flow *flow, const struct ptm_span *reader, int32_t after)
{
	int32_t soonest = GRAPH_NONE;

	for (size_t i = 0; i < flow->n_writers; i++) {
		const struct writer *writer = &flow->writers[i];
		int32_t write, thunk;

		if (writer->thread == reader->thread)
			continue;
		write = next_write(flow, writer, flow->states[i].last);
		if (write == GRAPH_NONE)
			continue;
		thunk = graph_first_to_know(flow->graph, reader->thread, after, soonest < 0 ? reader->until : soonest,
					    writer->thread, write);
		if (thunk != GRAPH_NONE)
			soonest = thunk;
	}
	return soonest;
}

/* In `thunk` the reader knows of more. Its own writes come after none of it. */
static int take_news(struct flow *flow, const struct ptm_span *reader, int32_t thunk)
{
	for (size_t i = 0; i < flow->n_writers; i++) {
		struct state *state = &flow->states[i];
		const int32_t before = state->last, thread = flow->writers[i].thread;

		state->fresh = false;
		if (thread == reader->thread)
			continue;
		last_write(flow, &flow->writers[i], graph_known(flow->graph, reader->thread, thunk, thread), state);
		state->fresh = state->last > before;
	}
	for (size_t i = 0; i < flow->n_writers; i++) {
		const bool edge = flow->states[i].fresh && !overwritten(flow, i);
		const int error = edge ? see(flow, reader, i, thunk) : 0;

		if (error)
			return error;
	}
	return 0;
}

int graph_flow(struct ptm_graph *graph, const struct page *page)
{
	struct flow flow = { .graph = graph, .page = page };
	int error = collect_writers(&flow);

	struct ptm_span reader;

	for (size_t at = 0; !error && graph_next_reader(graph, page, &at, &reader);) {
		int32_t thunk = reader.first;

		error = open_page(&flow, &reader);
		while (!error && (thunk = next_news(&flow, &reader, thunk)) != GRAPH_NONE)
			error = take_news(&flow, &reader, thunk);
	}
	return error;
}
