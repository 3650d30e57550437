/* SPDX-License-Identifier: MIT */
/*
 * Walks random and hostile flows under the sanitizers, in random batches, and checks what must hold of any flow:
 * every block and instruction counted once, no negative time, calls that nest. Argument: how many flows.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callers.h"
#include "merge_api.h"
#include "timeline.h"
#include "random.h"

enum { BLOCKS = 40, PATHS = 30, ROWS = 400, ANCHORS = 60, EVENTS = 40, VALUES = 256 };

struct flow {
	struct ptm_block blocks[BLOCKS];
	int64_t offsets[PATHS + 1];
	int32_t values[VALUES];
	int64_t seqs[ROWS];
	int32_t paths[ROWS];
	int64_t anchor_seqs[ANCHORS];
	int64_t anchor_times[ANCHORS];
	struct ptm_event events[EVENTS];
	int64_t n_blocks;
	int64_t n_instructions;
};

static void make_code(struct flow *flow)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct ptm_block *block = &flow->blocks[i];

		*block = (struct ptm_block){
			.addr = below(4) ? 8u * (uint32_t)i + 8 : any(),
			.ip = below(4) ? 8u * (uint32_t)i : any(),
			.size = 8,
			.last = below(9),
			.function = below(6),
			.instructions = below(2) ? below(5) : below(1 << 17), /* too many for a place to count */
			.cls = (uint8_t)below(PTM_CLASSES),
			.flags = (uint8_t)below(32),
		};
		if (block->function == PTM_SIGNAL || block->function == PTM_FOLDED)
			block->function = PTM_UNKNOWN;
	}
	for (int i = 0; i < VALUES; i++)
		flow->values[i] = (int32_t)below(BLOCKS);
	for (int i = 0; i < PATHS; i++)
		flow->offsets[i + 1] = flow->offsets[i] + below(VALUES / PATHS + 1);
}

static void make_flow(struct flow *flow)
{
	int64_t seq = below(3), t = 0;

	for (int i = 0; i < ROWS; i++) {
		const int path = (int)below(PATHS);

		flow->seqs[i] = seq;
		flow->paths[i] = path;
		for (int64_t j = flow->offsets[path]; j < flow->offsets[path + 1]; j++) {
			flow->n_blocks++;
			flow->n_instructions += flow->blocks[flow->values[j]].instructions;
		}
		seq += flow->offsets[path + 1] - flow->offsets[path] + (below(50) ? 0 : below(5));
	}
	for (int i = 0; i < ANCHORS; i++) {
		flow->anchor_seqs[i] = i ? flow->anchor_seqs[i - 1] + below(60) : 0;
		flow->anchor_times[i] = t += below(3) ? below(1000) : (int64_t)(any() >> 8);
	}
	for (int i = 0; i < EVENTS; i++)
		flow->events[i] = (struct ptm_event){
			.seq = i ? flow->events[i - 1].seq + below(60) : 0,
			.from = below(2) ? flow->blocks[below(BLOCKS)].addr : any(),
			.from_block = (int32_t)below(BLOCKS + 20) - 10,
			.to_block = (int32_t)below(BLOCKS + 20) - 10,
			.kind = 1 + (int32_t)below(5),
		};
}

/* A mark's number is that of a list, and no list is there twice. */
static void check_callers(struct ptm_walk *walk, struct ptm_callers *callers)
{
	size_t n, distinct;
	const struct ptm_mark *marks = ptm_walk_marks(walk, &n);
	const struct ptm_returns *items = ptm_callers_items(callers, &distinct);

	for (size_t i = 0; i < n; i++) {
		assert(!i || marks[i - 1].seq < marks[i].seq);
		assert(marks[i].block >= 0 && marks[i].block < BLOCKS);
		assert(marks[i].callers < distinct);
	}
	for (size_t i = 0; i < distinct && i < 50; i++)
		for (size_t j = 0; j < i; j++)
			assert(memcmp(&items[i], &items[j], sizeof(*items)));
}

/* More lists than the table first holds, each twice, told apart by every word of theirs. */
static void check_many_callers(void)
{
	enum { LISTS = 20000 };
	struct ptm_returns *lists = calloc(LISTS, sizeof(*lists));
	static uint32_t numbers[LISTS];
	struct ptm_callers *callers;
	size_t distinct;

	assert(lists && ptm_callers_create(&callers) == 0);
	for (size_t i = 0; i < LISTS; i++) {
		lists[i].known = i % 7;
		lists[i].returns[i % PTM_RETURNS] = (i / 2 + 1) << (i % 40);
	}
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < LISTS; i++)
			assert(!callers_number(callers, &lists[i], &numbers[i]));
		const struct ptm_returns *items = ptm_callers_items(callers, &distinct);

		assert(distinct > 1024 && distinct <= LISTS);
		for (size_t i = 0; i < LISTS; i++)
			assert(!memcmp(&items[numbers[i]], &lists[i], sizeof(*items)));
	}
	ptm_callers_destroy(callers);
	free(lists);
}

static void check_calls(struct ptm_walk *walk, struct ptm_callers *callers, int64_t *n_calls)
{
	size_t n;
	const struct ptm_call *calls = ptm_walk_calls(walk, &n);

	for (size_t i = 0; i < n; i++) {
		assert(calls[i].seq <= calls[i].seq_end);
		assert(calls[i].t_enter <= calls[i].t_exit);
		assert(calls[i].parent < calls[i].call);
		assert(calls[i].depth >= 1);
	}
	*n_calls += (int64_t)n;
	check_callers(walk, callers);
	ptm_walk_visits(walk, &n);
}

/* How many of `n` rows follow each other without a hole. */
static size_t follow_each_other(const struct flow *flow, const struct ptm_program *program, size_t row, size_t n)
{
	size_t count = 1;

	while (count < n && flow->seqs[row + count] ==
				    ptm_program_after(program, flow->seqs[row + count - 1], flow->paths[row + count - 1]))
		count++;
	return count;
}

/* Another tree takes over what this one has, in parts, and knows some stacks before. */
static void check_adopted(const struct ptm_tree *tree, int64_t many)
{
	const size_t n = ptm_tree_size(tree), first = below((uint32_t)n + 1);
	uint32_t *keys = malloc((n + 1) * 3 * sizeof(*keys)), *numbers = malloc((n + 1) * sizeof(*numbers));
	const uint32_t functions[] = { PTM_FIRST_FUNCTION, PTM_FIRST_FUNCTION + 1 }, blocks[] = { 0, PTM_NONE };
	const int64_t offsets[] = { 0, 2 };
	struct ptm_tree *other;
	uint32_t known;
	int error;

	assert(keys && numbers);
	ptm_tree_keys(tree, 0, n, keys);
	assert(ptm_tree_create(2 * n + 3, 1000, &other) == 0);
	assert(ptm_tree_stacks(other, functions, blocks, offsets, 1, &known) == 0);
	error = ptm_tree_adopt(other, keys, 0, first, numbers);
	if (!error)
		error = ptm_tree_adopt(other, keys + 3 * first, first, n, numbers);
	assert(error == (many ? -ENOSPC : 0));
	for (size_t i = 0; !error && i < n; i++) {
		const struct ptm_node *mine = &ptm_tree_nodes(tree)[i], *theirs = &ptm_tree_nodes(other)[numbers[i]];

		assert(mine->function == theirs->function && mine->block == theirs->block && mine->depth == theirs->depth);
		assert(mine->parent == PTM_NONE ? theirs->parent == PTM_NONE : theirs->parent == numbers[mine->parent]);
	}
	ptm_tree_destroy(other);
	assert(ptm_tree_create(2, 1000, &other) == 0);
	if (n > 2)
		assert(ptm_tree_adopt(other, keys, 0, n, numbers) == -ENOSPC);
	keys[0] = below(1000);
	assert(ptm_tree_adopt(other, keys, 0, 1, numbers) == -EINVAL);
	ptm_tree_destroy(other);
	free(keys);
	free(numbers);
}

static void walk_flow(const struct flow *flow, struct ptm_program *program)
{
	struct ptm_tree *tree;
	struct ptm_walk *walk;
	struct ptm_callers *callers;
	size_t anchors = 0, events = 0, row = 0, used_anchors, used_events, n;
	int64_t n_calls = 0, blocks = 0, instructions = 0, whole, deep, many, called = 0;
	timeline_ns time, spent;

	assert(ptm_tree_create(2 + below(60), 2 + below(8), &tree) == 0);
	assert(ptm_callers_create(&callers) == 0);
	assert(ptm_walk_create(program, tree, callers, (int)below(2), &walk) == 0);
	for (int thread = 0; thread < 2; thread++) {
		ptm_walk_begin(walk);
		for (anchors = events = row = 0; row < ROWS;) {
			const size_t batch = 1 + below(ROWS - (uint32_t)row);
			const bool follow = below(2);
			const int64_t *seqs = flow->seqs + row, *at = flow->anchor_seqs + anchors;
			const int64_t *times = flow->anchor_times + anchors;
			const int32_t *paths = flow->paths + row;
			const int64_t done = follow
				? ptm_walk_follow(walk, *seqs, paths, follow_each_other(flow, program, row, batch), at, times,
						  ANCHORS - anchors, flow->events + events, EVENTS - events,
						  &used_anchors, &used_events)
				: ptm_walk_feed(walk, seqs, paths, batch, at, times, ANCHORS - anchors,
						flow->events + events, EVENTS - events, &used_anchors, &used_events);

			assert(done > 0);
			assert(ptm_walk_next(walk) == ptm_program_after(program, seqs[done - 1], paths[done - 1]));
			row += (size_t)done;
			anchors += used_anchors;
			events += used_events;
			check_calls(walk, callers, &n_calls);
		}
		assert(ptm_walk_end(walk, flow->anchor_seqs + anchors, flow->anchor_times + anchors,
				    ANCHORS - anchors) == 0);
		check_calls(walk, callers, &n_calls);
		blocks = instructions = 0;
		time = 0;
		const uint32_t *touched = ptm_tree_touched(tree, &n);

		for (size_t i = 0; i < n; i++) {
			const struct ptm_node *node = &ptm_tree_nodes(tree)[touched[i]];

			assert(node->parent + 1 <= touched[i] + 1);
			memcpy(&spent, node->spent, sizeof(spent));
			blocks += node->blocks;
			instructions += node->instructions;
			time += spent;
			called += node->calls;
		}
		assert(blocks == flow->n_blocks);
		assert(instructions == flow->n_instructions);
		assert(time <= (timeline_ns)(flow->anchor_times[ANCHORS - 1] - flow->anchor_times[0]) * TIMELINE_NS);
	}
	ptm_walk_folds(walk, &whole, &deep, &many);
	assert(whole + deep + many == called);
	check_adopted(tree, many);
	ptm_callers_destroy(callers);
	ptm_walk_destroy(walk);
	ptm_tree_destroy(tree);
}

static void check_hostile(const struct flow *flow)
{
	struct ptm_program *program;
	struct flow bad = *flow;

	bad.values[0] = BLOCKS;
	bad.offsets[PATHS] = bad.offsets[PATHS] ? bad.offsets[PATHS] : 1;
	bad.offsets[1] = bad.offsets[1] ? bad.offsets[1] : 1;
	for (int i = 1; i < PATHS; i++)
		bad.offsets[i + 1] = bad.offsets[i + 1] < bad.offsets[i] ? bad.offsets[i] : bad.offsets[i + 1];
	assert(ptm_program_create(bad.blocks, BLOCKS, bad.offsets, bad.values, VALUES, PATHS, &program) == -EINVAL);
	bad = *flow;
	bad.offsets[PATHS] = VALUES + 1;
	assert(ptm_program_create(bad.blocks, BLOCKS, bad.offsets, bad.values, VALUES, PATHS, &program) == -EINVAL);
	bad = *flow;
	bad.blocks[bad.values[0]].cls = 77;
	bad.offsets[1] = 1;
	assert(ptm_program_create(bad.blocks, BLOCKS, bad.offsets, bad.values, VALUES, 1, &program) == -EINVAL);
}

static void check_undigested(const struct ptm_program *program)
{
	struct ptm_tree *tree;
	struct ptm_walk *walk;

	assert(ptm_tree_create(10, 10, &tree) == 0);
	assert(ptm_walk_create(program, tree, NULL, 0, &walk) == -EINVAL);
	ptm_tree_destroy(tree);
}

/* Of a flow's first rows: what is found is what a look at each block finds. An `end` of -1: it was refused. */
static struct ptm_survey survey(const struct ptm_program *program, const struct flow *flow, size_t n, struct ptm_met *met)
{
	int64_t *seqs = malloc(n * sizeof(*seqs) + 1);
	int32_t *paths = malloc(n * sizeof(*paths) + 1);
	struct ptm_survey found = { .end = -1 };

	assert(seqs && paths);
	const int error = ptm_program_survey(program, flow->seqs, 0, flow->paths, n, 7, met, seqs, paths, &found);

	assert(error == 0 || error == -EINVAL);
	size_t calls = 0, calling = 0;
	for (size_t i = 0; !error && i < n; i++) {
		const int64_t *offsets = &flow->offsets[flow->paths[i]];
		const size_t before = calls;

		for (int64_t j = offsets[0]; j < offsets[1]; j++)
			calls += flow->blocks[flow->values[j]].cls == PTM_SYSCALL;
		if (calls == before)
			continue;
		assert(seqs[calling] == flow->seqs[i] && paths[calling] == flow->paths[i]);
		calling++;
	}
	assert(error || (found.calls == calls && found.calling == calling && found.first == flow->seqs[0] &&
			 found.last == flow->seqs[n - 1] &&
			 found.end == ptm_program_after(program, found.last, flow->paths[n - 1])));
	free(seqs);
	free(paths);
	return found;
}

/* Of the rows that follow each other from the first one on: with and without their ordinals. Those behind a hole do not. */
static void check_following(const struct flow *flow, const struct ptm_program *program)
{
	struct ptm_met *met = calloc(PATHS, sizeof(*met));
	const size_t n = follow_each_other(flow, program, 0, ROWS);
	const struct ptm_survey with = survey(program, flow, n, met);
	int64_t *seqs = malloc(n * sizeof(*seqs));
	int32_t *paths = malloc(n * sizeof(*paths));
	struct ptm_survey without;

	assert(met && seqs && paths);
	assert(ptm_program_survey(program, NULL, flow->seqs[0], flow->paths, n, 8, met, seqs, paths, &without) == 0);
	assert(with.follow && without.follow && with.last == without.last && with.end == without.end);
	assert(with.calls == without.calls && with.calling == without.calling);
	for (size_t i = 0; i < n; i++)
		assert(met[flow->paths[i]].first == 7 && met[flow->paths[i]].last == 8);
	assert(survey(program, flow, ROWS, NULL).follow == (n == ROWS));
	free(met);
	free(seqs);
	free(paths);
}

/* Paths that do not exist, ordinals that go back: refused, at whatever place. */
static void check_refused(const struct flow *flow, struct ptm_program *program)
{
	struct ptm_tree *tree;
	struct ptm_walk *walk;
	struct flow bad = *flow;
	size_t anchors, events;

	assert(ptm_tree_create(100, 10, &tree) == 0);
	assert(ptm_walk_create(program, tree, NULL, 1, &walk) == 0);
	bad.paths[200] = PATHS;
	assert(ptm_walk_feed(walk, bad.seqs, bad.paths, ROWS, NULL, NULL, 0, NULL, 0, &anchors, &events) == -EINVAL);
	assert(survey(program, &bad, ROWS, NULL).end == -1);
	assert(survey(program, &bad, 0, NULL).end == -1);
	bad.paths[200] = -1;
	ptm_walk_begin(walk);
	assert(ptm_walk_feed(walk, bad.seqs, bad.paths, ROWS, NULL, NULL, 0, NULL, 0, &anchors, &events) == -EINVAL);
	bad = *flow;
	bad.seqs[100] = -1;
	ptm_walk_begin(walk);
	assert(ptm_walk_feed(walk, bad.seqs, bad.paths, ROWS, NULL, NULL, 0, NULL, 0, &anchors, &events) == -EILSEQ);
	ptm_walk_destroy(walk);
	ptm_tree_destroy(tree);
}

/* A recursion deeper than frames are kept, and back. */
static void check_very_deep(void)
{
	struct ptm_block blocks[3] = {
		{ .addr = 8, .ip = 8, .size = 8, .function = 3, .instructions = 1, .cls = PTM_CALL, .flags = PTM_ENTRY },
		{ .addr = 16, .ip = 16, .size = 8, .function = 3, .instructions = 1, .cls = PTM_RETURN },
		{ .addr = 24, .ip = 24, .size = 8, .function = 3, .instructions = 1, .cls = PTM_RETURN },
	};
	const int64_t offsets[] = { 0, 1, 2, 3 };
	const int32_t values[] = { 0, 1, 2 };
	enum { DEEP = (1 << 20) + 1000, ALL = 2 * DEEP + 1 };
	int64_t *seqs = malloc(ALL * sizeof(*seqs));
	int32_t *paths = malloc(ALL * sizeof(*paths));
	struct ptm_program *program;
	struct ptm_tree *tree;
	struct ptm_walk *walk;
	size_t anchors, events, n;
	int64_t done = 0, whole, deep, many;

	assert(seqs && paths);
	for (int i = 0; i < ALL; i++) {
		seqs[i] = i;
		paths[i] = i < DEEP ? 0 : i == DEEP ? 2 : 1;
	}
	assert(ptm_program_create(blocks, 3, offsets, values, 3, 3, &program) == 0);
	assert(ptm_program_digest(program) == 0);
	assert(ptm_tree_create(1000, 100, &tree) == 0);
	assert(ptm_walk_create(program, tree, NULL, 0, &walk) == 0);
	while (done < ALL) {
		const int64_t some = ptm_walk_feed(walk, seqs + done, paths + done, (size_t)(ALL - done), NULL, NULL,
						   0, NULL, 0, &anchors, &events);
		assert(some > 0);
		done += some;
	}
	assert(ptm_walk_end(walk, NULL, NULL, 0) == 0);
	ptm_walk_folds(walk, &whole, &deep, &many);
	assert(whole == 100 && deep == DEEP - 99 && many == 0);
	ptm_tree_touched(tree, &n);
	assert(n == 100);
	/* the bottom frame ran its call, and what its callee returned to */
	assert(ptm_tree_nodes(tree)[0].blocks == 2);
	ptm_walk_destroy(walk);
	ptm_tree_destroy(tree);
	ptm_program_destroy(program);
	free(seqs);
	free(paths);
}

/* Stacks are found again under the numbers they were given, and the nodes are what was asked for: of parents with few
 * children and with thousands, before and behind the hash's growth, and with more folded functions than `max_nodes`. */
static void check_found_again(size_t max_nodes, uint32_t n_functions, uint32_t max_depth)
{
	enum { STACKS = 60000, FRAMES = 4 };
	static uint32_t functions[STACKS * FRAMES], blocks[STACKS * FRAMES], first[STACKS], again[STACKS];
	static int64_t offsets[STACKS + 1];
	struct ptm_tree *tree;

	for (int i = 0; i < STACKS; i++) {
		const int64_t frames = 1 + below(FRAMES);

		offsets[i + 1] = offsets[i] + frames;
		for (int64_t frame = offsets[i]; frame < offsets[i + 1]; frame++) {
			functions[frame] = 3 + below(n_functions);
			blocks[frame] = below(2);
		}
	}
	assert(ptm_tree_create(max_nodes, max_depth, &tree) == 0);
	assert(ptm_tree_stacks(tree, functions, blocks, offsets, STACKS, first) == 0);
	const size_t size = ptm_tree_size(tree);

	assert(ptm_tree_stacks(tree, functions, blocks, offsets, STACKS, again) == 0);
	assert(ptm_tree_size(tree) == size && !memcmp(first, again, sizeof(first)));
	for (int i = 0; i < STACKS; i++) {
		const struct ptm_node *nodes = ptm_tree_nodes(tree), *node = &nodes[first[i]];

		assert(first[i] < size && node->function == functions[offsets[i]]);
		if (size > max_nodes || node->depth < (uint32_t)(offsets[i + 1] - offsets[i]))
			continue; /* folded */
		for (int64_t frame = offsets[i]; frame < offsets[i + 1]; frame++) {
			assert(node->function == functions[frame] && node->block == blocks[frame]);
			node = node->parent == PTM_NONE ? NULL : &nodes[node->parent];
		}
		assert(!node);
	}
	ptm_tree_destroy(tree);
}

static int64_t after(struct timeline *line, int64_t x)
{
	while (!timeline_is_clear(line, x))
		timeline_pass(line);
	return timeline_between(line, x);
}

static int64_t before(struct timeline *line, int64_t x)
{
	while (timeline_is_behind(line, x))
		timeline_pass(line);
	return timeline_arrival(line, x);
}

static void check_timeline(void)
{
	const int64_t seqs[] = { 0, 10, 10, 20 }, times[] = { 100, 200, 500, INT64_MAX - 5 };
	struct timeline line;

	timeline_init(&line);
	assert(after(&line, 3) == 0);
	timeline_supply(&line, seqs, times, 4);
	assert(after(&line, 0) == 100);
	assert(after(&line, 9) == 190);
	assert(before(&line, 10) == 200);
	assert(after(&line, 10) == 500);
	assert(before(&line, 10) == 500);
	assert(after(&line, 15) == 500 + (INT64_MAX - 505) / 2);
	assert(after(&line, 1000) == INT64_MAX - 5);
}

/* Interpolation is exact for spans of every width. */
static void check_interpolation(void)
{
	for (int i = 0; i < 200000; i++) {
		const int64_t span = (int64_t)(any() >> (1 + below(63))), time = (int64_t)(any() >> (2 + below(62)));
		const int64_t seqs[] = { 0, span < INT64_MAX ? span + 1 : span }, times[] = { 7, 7 + time };
		const int64_t x = (int64_t)(any() % (uint64_t)seqs[1]);
		const unsigned __int128 product = (unsigned __int128)(uint64_t)x * (uint64_t)time;
		struct timeline line;

		timeline_init(&line);
		timeline_supply(&line, seqs, times, 2);
		assert(after(&line, x) == 7 + (int64_t)(product / (uint64_t)seqs[1]));
	}
}

int main(int argc, char **argv)
{
	const int flows = argc > 1 ? atoi(argv[1]) : 100;

	check_timeline();
	check_interpolation();
	check_many_callers();
	check_very_deep();
	check_found_again(100000, 40, 100);
	check_found_again(200000, 20000, 100);
	check_found_again(100000, 40, 3);
	check_found_again(300, 5000, 100); /* most are folded */
	check_found_again(100000, 20000, 100); /* tables of several huge pages, and more folded ones than reckoned with */
	for (int i = 0; i < flows; i++) {
		struct flow *flow = calloc(1, sizeof(*flow));
		struct ptm_program *program;
		int64_t *found;
		int32_t *where;

		assert(flow);
		make_code(flow);
		make_flow(flow);
		assert(ptm_program_create(flow->blocks, BLOCKS, flow->offsets, flow->values, VALUES, PATHS, &program) == 0);
		const int64_t count = (int64_t)survey(program, flow, ROWS, NULL).calls;

		check_undigested(program);
		assert(ptm_program_digest(program) == 0);
		walk_flow(flow, program);
		check_refused(flow, program);
		assert((int64_t)survey(program, flow, ROWS, NULL).calls == count);
		check_following(flow, program);
		found = malloc((size_t)count * sizeof(*found) + 1);
		where = malloc((size_t)count * sizeof(*where) + 1);
		assert(found && where);
		assert(ptm_program_scan(program, flow->seqs, flow->paths, ROWS, found, where, (size_t)count) == count);
		for (int64_t j = 1; j < count; j++)
			assert(found[j] > found[j - 1]);
		free(found);
		free(where);
		ptm_program_destroy(program);
		check_hostile(flow);
		free(flow);
	}
	printf("%d flows\n", flows);
	return 0;
}
