/* SPDX-License-Identifier: MIT */
/*
 * Compares random and hostile flows under the sanitizers, fed in random batches, and checks what must hold: a flow does
 * not differ from itself, however it is fed; a comparison ends; what it found names blocks, nodes and functions that
 * exist; what corresponds is in order. Argument: how many flows.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_api.h"
#include "random.h"
#include "sync.h"

enum { BLOCKS = 40, PATHS = 30, ROWS = 400, EVENTS = 20, VALUES = 256, PLACES = 50 };

struct flow {
	struct ptm_block blocks[BLOCKS];
	struct ptm_places places[BLOCKS];
	int64_t offsets[PATHS + 1];
	int32_t values[VALUES];
	int64_t seqs[ROWS];
	int32_t paths[ROWS];
	struct ptm_event events[EVENTS];
	struct ptm_program *program;
	struct ptm_tree *tree;
};

static void make_code(struct flow *flow)
{
	*flow = (struct flow){ 0 };
	for (int i = 0; i < BLOCKS; i++) {
		flow->blocks[i] = (struct ptm_block){
			.addr = 8u * (uint32_t)i + 8, .ip = 8u * (uint32_t)i, .size = 8, .last = below(8),
			.function = below(6), .instructions = below(5), .cls = (uint8_t)below(PTM_CLASSES),
			.flags = (uint8_t)below(32),
		};
		if (flow->blocks[i].function == PTM_SIGNAL || flow->blocks[i].function == PTM_FOLDED)
			flow->blocks[i].function = PTM_UNKNOWN;
		flow->places[i] = (struct ptm_places){ below(PLACES), below(PLACES), below(12) ? 0 : below(3) };
	}
	for (int i = 0; i < VALUES; i++)
		flow->values[i] = (int32_t)below(BLOCKS);
	for (int i = 0; i < PATHS; i++)
		flow->offsets[i + 1] = flow->offsets[i] + below(VALUES / PATHS + 1);
}

static void make_flow(struct flow *flow, uint32_t gaps, uint32_t few)
{
	int64_t seq = below(3);

	for (int i = 0; i < ROWS; i++) {
		const int path = (int)below(few ? few : PATHS);

		flow->seqs[i] = seq;
		flow->paths[i] = path;
		seq += flow->offsets[path + 1] - flow->offsets[path] + (gaps && !below(gaps) ? 1 + below(5) : 0);
	}
	for (int i = 0; i < EVENTS; i++)
		flow->events[i] = (struct ptm_event){
			.seq = i ? flow->events[i - 1].seq + below(60) : 0,
			.from = flow->blocks[below(BLOCKS)].addr,
			.from_block = (int32_t)below(BLOCKS + 20) - 10,
			.to_block = (int32_t)below(BLOCKS + 20) - 10,
			.kind = 1 + (int32_t)below(5),
		};
}

static void open_flow(struct flow *flow)
{
	assert(ptm_program_create(flow->blocks, BLOCKS, flow->offsets, flow->values, VALUES, PATHS, &flow->program) == 0);
	assert(ptm_program_digest(flow->program) == 0);
	assert(ptm_tree_create(2 + below(500), 2 + below(100), &flow->tree) == 0);
}

static void close_flow(struct flow *flow)
{
	ptm_tree_destroy(flow->tree);
	ptm_program_destroy(flow->program);
}

/* Give some rows, and the events up to their end. */
static void feed(struct ptm_compare *compare, int side, const struct flow *flow, size_t *row, size_t *event)
{
	const size_t n = below(80) < ROWS - *row ? below(80) % (ROWS - *row + 1) : ROWS - *row;
	const int64_t end = *row + n == ROWS ? INT64_MAX : flow->seqs[*row + n];
	size_t events = 0;

	while (*event + events < EVENTS && flow->events[*event + events].seq < end)
		events++;
	assert(ptm_compare_feed(compare, side, flow->seqs + *row, flow->paths + *row, n, flow->events + *event, events,
				*row + n == ROWS) == 0);
	*row += n;
	*event += events;
}

static void check_way(const struct ptm_way *way, const struct flow *flow)
{
	assert(way->block < BLOCKS && way->from_block < BLOCKS);
	assert(way->stack == UINT32_MAX || way->stack < ptm_tree_size(flow->tree));
	assert(way->blocks >= 0 && way->instructions >= 0 && way->n_callees <= PTM_CALLEES);
	assert(way->sync_seq < 0 || way->sync_seq >= way->seq);
}

static size_t compare_flows(struct flow *a, struct flow *b)
{
	struct ptm_compare *compare;
	size_t rows[2] = { 0 }, events[2] = { 0 }, n;
	struct flow *flows[2] = { a, b };
	int64_t others, agreed;
	int lacks;

	open_flow(a);
	open_flow(b);
	assert(ptm_compare_create(a->program, a->places, a->tree, b->program, b->places, b->tree,
				  below(2) ? 0 : INT64_MAX, &compare) == 0);
	assert(ptm_compare_feed(compare, 2, a->seqs, a->paths, 1, NULL, 0, 0) == -22);
	for (int turn = 0; turn < 2; turn++) {
		ptm_compare_begin(compare);
		rows[0] = rows[1] = events[0] = events[1] = 0;
		while ((lacks = ptm_compare_run(compare)) != 0) {
			assert(lacks > 0 && lacks < 4);
			for (int side = 0; side < 2; side++)
				if (lacks >> side & 1)
					feed(compare, side, flows[side], &rows[side], &events[side]);
		}
	}
	const struct ptm_difference *found = ptm_compare_found(compare, &n, &others, &agreed);

	for (size_t i = 0; i < n; i++) {
		assert(found[i].times > 0);
		check_way(&found[i].ways[0], a);
		check_way(&found[i].ways[1], b);
	}
	assert(agreed >= 0);
	ptm_compare_destroy(compare);
	close_flow(a);
	close_flow(b);
	return n;
}

static void check_correspondence(void)
{
	uint64_t a[600], b[600];
	int64_t to[600], last = -1;
	const size_t n = below(600), m = below(600);
	const uint32_t kinds = 1 + below(200);

	for (size_t i = 0; i < n; i++)
		a[i] = below(kinds);
	for (size_t i = 0; i < m; i++)
		b[i] = i < n && below(10) ? a[i] : below(kinds);
	assert(ptm_correspond(a, n, b, m, to) == 0);
	for (size_t i = 0; i < n; i++) {
		if (to[i] < 0)
			continue;
		assert(to[i] > last && (size_t)to[i] < m && b[to[i]] == a[i]);
		last = to[i];
	}
}

/* One side begins with elements of its own, and lacks some of the other's; then they are alike to the end, or but for one. */
static void check_brief(void)
{
	uint64_t a[128], b[128];
	const size_t gone = below(20), more = below(20), alike = gone + more + 20 + below(48);
	const size_t odd = below(2) ? below((uint32_t)alike) : alike;
	const size_t few = odd < 3 ? odd + 1 : 0; /* what is alike before the odd one is no stretch */
	const int32_t sure = 3 + (int32_t)below(60);
	const int found = (odd < 3 || odd == alike) && alike - few >= (size_t)sure;
	struct sync sync;
	size_t at[2];

	for (size_t i = 0; i < gone + alike; i++)
		a[i] = 1000 + i;
	for (size_t i = 0; i < more; i++)
		b[i] = i;
	memcpy(b + more, a + gone, alike * sizeof(*a));
	if (odd < alike)
		b[more + odd] = 99999;
	const struct sync_window left = { .keys = a, .n = gone + alike }, right = { .keys = b, .n = more + alike };

	sync_init(&sync);
	assert(sync_find_brief(&sync, &left, &right, sure, at) == found);
	assert(!found || (at[0] == gone + few && at[1] == more + few));
	sync_deinit(&sync);
}

int main(int argc, char **argv)
{
	const int wanted = argc > 1 ? atoi(argv[1]) : 100;

	for (int i = 0; i < wanted; i++) {
		static struct flow a, b;

		make_code(&a);
		make_flow(&a, 0, 0);
		for (int k = 0; k < EVENTS; k++) /* a hole on both sides is told, even where both are alike */
			if (a.events[k].kind == PTM_GAP)
				a.events[k].kind = PTM_MOVED;
		b = a;
		assert(compare_flows(&a, &b) == 0);
		make_flow(&b, below(2) ? 50 : 0, below(PATHS));
		compare_flows(&a, &b);
		make_code(&b);
		make_flow(&b, below(2) ? 10 : 0, 0);
		compare_flows(&a, &b);
		check_correspondence();
		check_brief();
	}
	printf("%d comparisons\n", wanted);
	return 0;
}
