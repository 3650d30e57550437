/* SPDX-License-Identifier: MIT */
/*
 * Data edges of a page of which is known which bytes each thunk wrote: every byte has last writers of its own.
 *
 * For one reading thread after the other the writes it knows of only grow: for each writer the last write of each byte is
 * kept, and brought up to date when the reader opens the page or comes to know of more.
 */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WRITERS, WRITES, LAST, PAIRS }; /* rooms of the graph's scratch */

/* A span that wrote. */
struct write {
	int32_t thunk;
	int32_t until;
	const struct ptm_span *span;
};

/* A thread that wrote the page: writes[first, first + n) in order. The reader knows the first `known` of them, and knew
 * `before` of them when edges were made last. */
struct writer {
	int32_t thread;
	size_t first;
	size_t n;
	size_t known;
	size_t before;
	int32_t *last; /* of each byte: which of all writes wrote it last, + 1; 0 none */
};

struct flow {
	struct ptm_graph *graph;
	const struct page *page;
	struct writer *writers;
	size_t n_writers;
	size_t latest; /* a writer that overwrote another: most often it is the one for the next byte and writer, too */
	struct write *writes;
	size_t n_pairs;
	bool in_order; /* pairs came as they are wanted, which they do where a writer wrote once */
};

static void put_write(struct flow *flow, const struct ptm_span *span, size_t n_writes)
{
	const int32_t until = span->runs ? span->first : graph_end(flow->graph, span);
	struct writer *writer = flow->n_writers ? &flow->writers[flow->n_writers - 1] : NULL;

	flow->writes[n_writes] = (struct write){ .thunk = span->first, .until = until, .span = span };
	if (!writer || writer->thread != span->thread) {
		writer = &flow->writers[flow->n_writers++];
		*writer = (struct writer){ .thread = span->thread, .first = n_writes };
	}
	writer->n++;
}

static int collect_writers(struct flow *flow)
{
	struct ptm_graph *graph = flow->graph;
	size_t n_writes = 0;

	if (room_reach(&graph->scratch[WRITES], flow->page->n, sizeof(struct write)) < 0 ||
	    room_reach(&graph->scratch[WRITERS], flow->page->n, sizeof(struct writer)) < 0)
		return -ENOMEM;
	flow->writes = graph->scratch[WRITES].items;
	flow->writers = graph->scratch[WRITERS].items;
	for (size_t i = 0; i < flow->page->n; i++) {
		const struct ptm_span *span = &flow->page->spans[i];

		if (span->runs || span->flags & PTM_SPAN_WRITES)
			put_write(flow, span, n_writes++);
	}
	if (room_reach(&graph->scratch[LAST], flow->n_writers * GRAPH_PAGE, sizeof(int32_t)) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < flow->n_writers; i++)
		flow->writers[i].last = (int32_t *)graph->scratch[LAST].items + i * GRAPH_PAGE;
	return 0;
}

/* Another thread reads: it knows of nothing yet. */
static void begin_reader(struct flow *flow)
{
	for (size_t i = 0; i < flow->n_writers; i++) {
		flow->writers[i].known = flow->writers[i].before = 0;
		memset(flow->writers[i].last, 0, GRAPH_PAGE * sizeof(int32_t));
	}
}

static void fill(int32_t *last, uint32_t from, uint32_t length, int32_t value)
{
	for (uint32_t byte = from; byte < from + length; byte++)
		last[byte] = value;
}

/* The reader knows of one more of a writer's writes. */
static void learn(struct flow *flow, struct writer *writer)
{
	const size_t index = writer->first + writer->known++;
	const struct ptm_span *span = flow->writes[index].span;

	if (!span->runs)
		fill(writer->last, 0, GRAPH_PAGE, (int32_t)index + 1);
	for (uint32_t i = 0; i < span->runs; i++) {
		const uint32_t run = flow->page->runs[span->run + i];

		fill(writer->last, run & 0xffff, run >> 16, (int32_t)index + 1);
	}
}

static void learn_all(struct flow *flow, int32_t thread, int32_t thunk)
{
	for (size_t i = 0; i < flow->n_writers; i++) {
		struct writer *writer = &flow->writers[i];
		const int32_t known = graph_known(flow->graph, thread, thunk, writer->thread);

		while (writer->known < writer->n && flow->writes[writer->first + writer->known].thunk <= known)
			learn(flow, writer);
	}
}

/* The last write of writer `other` to the byte is known and comes after the one of writer `index`. */
static bool follows(const struct flow *flow, size_t other, size_t index, uint32_t byte)
{
	const struct writer *writer = &flow->writers[index], *later = &flow->writers[other];

	return other != index && later->last[byte] &&
	       graph_before(flow->graph, writer->thread, flow->writes[writer->last[byte] - 1].thunk, later->thread,
			    flow->writes[later->last[byte] - 1].thunk);
}

/* A write of another writer to the same byte, known too, comes after the one of writer `index`. */
static bool overwritten(struct flow *flow, size_t index, uint32_t byte)
{
	if (follows(flow, flow->latest, index, byte))
		return true;
	for (size_t i = 0; i < flow->n_writers; i++)
		if (follows(flow, i, index, byte)) {
			flow->latest = i;
			return true;
		}
	return false;
}

/* Note that the last write of writer `index` to the byte is one that the reader did not know of before. */
static int put_pair(struct flow *flow, size_t index, uint32_t byte)
{
	struct room *room = &flow->graph->scratch[PAIRS];
	const uint64_t pair = (uint64_t)(flow->writers[index].last[byte] - 1) << 12 | byte;

	if (room_reach(room, flow->n_pairs + 1, sizeof(uint64_t)) < 0)
		return -ENOMEM;
	uint64_t *pairs = room->items;

	flow->in_order = flow->in_order && (!flow->n_pairs || pairs[flow->n_pairs - 1] < pair);
	pairs[flow->n_pairs++] = pair;
	return 0;
}

/* Note (write, byte) for each byte whose last write is one that the reader did not know of before. */
static int pair_up(struct flow *flow, bool all)
{
	int error = 0;

	flow->n_pairs = 0;
	flow->in_order = true;
	for (size_t i = 0; !error && i < flow->n_writers; i++) {
		struct writer *writer = &flow->writers[i];
		const size_t old = all ? 0 : writer->first + writer->before; /* a `last` up to this is none or known */

		for (uint32_t byte = 0; !error && byte < GRAPH_PAGE && writer->known; byte++)
			if ((size_t)writer->last[byte] > old && !overwritten(flow, i, byte))
				error = put_pair(flow, i, byte);
		writer->before = writer->known;
	}
	return error;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* The runs of the bytes in pairs [first, end), which are of one write, and its edge. */
static int put_edge(struct flow *flow, const struct ptm_span *reader, int32_t thunk, size_t first, size_t end)
{
	const uint64_t *pairs = flow->graph->scratch[PAIRS].items;
	const struct write *write = &flow->writes[pairs[first] >> 12];
	const size_t begin = flow->graph->n_runs;
	int error = 0;

	for (size_t i = first, next; !error && i < end; i = next) {
		for (next = i + 1; next < end && pairs[next] == pairs[next - 1] + 1; next++)
			;
		error = graph_put_run(flow->graph, (uint32_t)(pairs[i] & (GRAPH_PAGE - 1)) | (uint32_t)(next - i) << 16);
	}
	return error ? error : graph_put_edge(flow->graph, &(struct ptm_edge){
		.page = reader->page, .program = reader->program, .run = (int64_t)begin,
		.runs = (uint32_t)(flow->graph->n_runs - begin), .from_thread = write->span->thread,
		.from_thunk = write->thunk, .from_until = write->until, .to_thread = reader->thread, .to_thunk = thunk,
		.to_until = reader->until });
}

static int put_edges(struct flow *flow, const struct ptm_span *reader, int32_t thunk, bool all)
{
	int error = pair_up(flow, all);
	const uint64_t *pairs = flow->graph->scratch[PAIRS].items;

	if (!error && !flow->in_order)
		qsort(flow->graph->scratch[PAIRS].items, flow->n_pairs, sizeof(*pairs), by_number);
	for (size_t first = 0, end; !error && first < flow->n_pairs; first = end) {
		for (end = first + 1; end < flow->n_pairs && pairs[end] >> 12 == pairs[first] >> 12; end++)
			;
		error = put_edge(flow, reader, thunk, first, end);
	}
	return error;
}

/* The next thunk of the reader that knows of more writes of other threads; GRAPH_NONE none. */
static int32_t next_news(const struct flow *flow, const struct ptm_span *reader, int32_t after)
{
	int32_t soonest = GRAPH_NONE;

	for (size_t i = 0; i < flow->n_writers; i++) {
		const struct writer *writer = &flow->writers[i];
		int32_t thunk;

		if (writer->thread == reader->thread || writer->known == writer->n)
			continue;
		thunk = graph_first_to_know(flow->graph, reader->thread, after, soonest < 0 ? reader->until : soonest,
					    writer->thread, flow->writes[writer->first + writer->known].thunk);
		if (thunk != GRAPH_NONE)
			soonest = thunk;
	}
	return soonest;
}

int graph_flow_bytes(struct ptm_graph *graph, const struct page *page)
{
	struct flow flow = { .graph = graph, .page = page };
	int32_t reading = GRAPH_NONE;
	int error = collect_writers(&flow);

	struct ptm_span reader;

	for (size_t at = 0; !error && graph_next_reader(graph, page, &at, &reader);) {
		int32_t thunk = reader.first;

		if (reader.thread != reading)
			begin_reader(&flow);
		reading = reader.thread;
		for (bool all = true; !error && thunk != GRAPH_NONE; all = false) {
			learn_all(&flow, reader.thread, thunk);
			error = put_edges(&flow, &reader, thunk, all);
			if (!error)
				thunk = next_news(&flow, &reader, thunk);
		}
	}
	return error;
}
