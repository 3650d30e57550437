/* SPDX-License-Identifier: MIT */
/*
 * Races on a page: accesses that are known for certain, of two threads, one of them a write, in thunks neither of which
 * happens before the other.
 *
 * A thread's accesses from one place in the code form a group. Of a thunk of another thread, those of a thread's thunks
 * that are concurrent with it stand in one row: after the last that comes before it, before the first that comes after.
 * So pairs are counted by searching, not one by one, except where bytes must be compared.
 */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>

enum { GROUPS, ITEMS }; /* rooms of the graph's scratch */

enum {
	GROUPS_MAX = 512,      /* beyond so many on one page, places are not told apart by address any more */
	COMPARED_MAX = 1 << 16 /* concurrent writes of two places whose bytes are compared */
};

/* An access: of the group it belongs to. `span` has the bytes, where they are known. */
struct item {
	int32_t thread;
	int32_t thunk;
	uint32_t wrote;
	uint64_t site;
	uint64_t address;
	const struct ptm_span *span;
};

struct group {
	const struct item *items;
	size_t n;
	bool bytes; /* those of some item are known */
};

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_group(const void *left, const void *right)
{
	const struct item *a = left, *b = right;
	int order = a->thread < b->thread ? -1 : a->thread > b->thread;

	if (!order)
		order = compare(a->site, b->site);
	if (!order)
		order = compare(a->wrote, b->wrote);
	if (!order)
		order = compare(a->address, b->address);
	return order ? order : (a->thunk < b->thunk ? -1 : a->thunk > b->thunk);
}

static bool one_group(const struct item *a, const struct item *b)
{
	return a->thread == b->thread && a->site == b->site && a->wrote == b->wrote && a->address == b->address;
}

/* The page's accesses. A write whose bytes are known was made where the thread opened the page for writing. */
static size_t collect(const struct page *page, struct item *items)
{
	uint64_t site = 0, address = 0;
	int32_t thread = GRAPH_NONE;
	bool bytes = false;
	size_t n = 0;

	for (size_t i = 0; i < page->n; i++)
		bytes |= page->spans[i].runs != 0;
	for (size_t i = 0; i < page->n; i++) {
		const struct ptm_span *span = &page->spans[i];
		const bool wrote = span->flags & PTM_SPAN_WROTE, known = span->flags & PTM_SPAN_KNOWN;

		if (span->thread != thread)
			site = address = 0;
		thread = span->thread;
		if (wrote && known && !span->runs) {
			site = span->site;
			address = span->address;
		}
		if (span->runs)
			items[n++] = (struct item){ thread, span->first, 1, site, address, span };
		else if (known && !(wrote && bytes && !(span->flags & PTM_SPAN_WRITES)))
			items[n++] = (struct item){ thread, span->first, wrote, span->site, span->address, span };
	}
	return n;
}

static size_t make_groups(struct item *items, size_t n, struct group *groups)
{
	size_t n_groups = 0;

	qsort(items, n, sizeof(*items), by_group);
	for (size_t i = 0; i < n; i++) {
		if (!i || !one_group(&items[i], &items[i - 1]))
			groups[n_groups++] = (struct group){ .items = &items[i] };
		groups[n_groups - 1].n++;
		groups[n_groups - 1].bytes |= items[i].span->runs != 0;
	}
	return n_groups;
}

/* The first item of a group from which on thunks are not before `of`'s (`after` false), or come after it. */
static size_t first_item(const struct ptm_graph *graph, const struct group *group, const struct item *of, bool after)
{
	size_t low = 0, high = group->n;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct item *item = &group->items[middle];
		const bool there = after ? graph_before(graph, of->thread, of->thunk, item->thread, item->thunk)
					 : !graph_before(graph, item->thread, item->thunk, of->thread, of->thunk);

		if (there)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool covers(const struct page *page, const struct ptm_span *span, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < span->runs; i++) {
		const uint32_t run = page->runs[span->run + i], begin = run & 0xffff;

		if (begin < to && from < begin + (run >> 16))
			return true;
	}
	return false;
}

/* Whether two accesses touch the same bytes, as far as is known; -1: they do not. */
static int overlap(const struct page *page, const struct item *a, const struct item *b)
{
	if (a->span->runs && b->span->runs) {
		for (uint32_t i = 0; i < a->span->runs; i++) {
			const uint32_t run = page->runs[a->span->run + i];

			if (covers(page, b->span, run & 0xffff, (run & 0xffff) + (run >> 16)))
				return PTM_OVERLAP_BYTES;
		}
		return -1;
	}
	if (a->span->runs || b->span->runs) {
		const struct item *reader = a->span->runs ? b : a, *writer = a->span->runs ? a : b;
		const uint32_t byte = (uint32_t)(reader->address & (GRAPH_PAGE - 1));

		return reader->address && covers(page, writer->span, byte, byte + 1) ? PTM_OVERLAP_BYTES : PTM_OVERLAP_PAGE;
	}
	return a->address && a->address / 8 == b->address / 8 ? PTM_OVERLAP_ADDRESS : PTM_OVERLAP_PAGE;
}

static void note(struct ptm_race *race, const struct item *a, const struct item *b, int how, int64_t count)
{
	if (!race->count || how > race->overlap) {
		race->overlap = how;
		race->thunk[0] = a->thunk;
		race->thunk[1] = b->thunk;
	}
	race->count += count;
}

/* Pairs of one access of `b` with those of `a` that are concurrent with it. */
static void pair(const struct ptm_graph *graph, const struct page *page, const struct group *a, const struct item *b,
		 bool bytes, struct ptm_race *race)
{
	const size_t first = first_item(graph, a, b, false), end = first_item(graph, a, b, true);

	if (first >= end)
		return;
	if (!bytes) {
		note(race, &a->items[first], b, overlap(page, &a->items[first], b), (int64_t)(end - first));
		return;
	}
	for (size_t i = first; i < end && race->count < COMPARED_MAX; i++) {
		const int how = overlap(page, &a->items[i], b);

		if (how >= 0)
			note(race, &a->items[i], b, how, 1);
	}
}

static int compare_groups(struct ptm_graph *graph, const struct page *page, const struct group *a,
			  const struct group *b)
{
	struct ptm_race race = { .page = page->spans->page, .program = page->spans->program };
	const bool bytes = a->bytes || b->bytes; /* then pairs may not overlap, and are compared one by one */

	for (size_t i = 0; i < b->n; i++)
		pair(graph, page, a, &b->items[i], bytes, &race);
	if (!race.count)
		return 0;
	for (size_t side = 0; side < 2; side++) {
		const struct item *item = side ? b->items : a->items;

		race.site[side] = item->site;
		race.address[side] = item->address;
		race.thread[side] = item->thread;
		race.wrote[side] = item->wrote;
	}
	return graph_put_race(graph, &race);
}

int graph_races(struct ptm_graph *graph, const struct page *page)
{
	struct item *items;
	struct group *groups;
	size_t n, n_groups;

	if (room_reach(&graph->scratch[ITEMS], page->n, sizeof(*items)) < 0 ||
	    room_reach(&graph->scratch[GROUPS], page->n, sizeof(*groups)) < 0)
		return -ENOMEM;
	items = graph->scratch[ITEMS].items;
	groups = graph->scratch[GROUPS].items;
	n = collect(page, items);
	n_groups = make_groups(items, n, groups);
	if (n_groups > GROUPS_MAX) {
		for (size_t i = 0; i < n; i++)
			items[i].address = 0;
		n_groups = make_groups(items, n, groups);
	}
	for (size_t b = 1; b < n_groups; b++)
		for (size_t a = 0; a < b; a++) {
			const bool conflict = groups[a].items->thread != groups[b].items->thread &&
					      (groups[a].items->wrote || groups[b].items->wrote);
			const int error = conflict ? compare_groups(graph, page, &groups[a], &groups[b]) : 0;

			if (error)
				return error;
		}
	return 0;
}
