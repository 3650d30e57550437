/* SPDX-License-Identifier: MIT */
/*
 * Walks random flows as a whole and in parts, under the sanitizers: both must find the very same stacks, counts, marks and
 * visits. Functions call each other, return, jump, are interrupted, throw, and now and then do what no program does.
 * Arguments: how many flows; "blind", to join parts whether they fit or not: the control.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge_api.h"
#include "random.h"
#include "walk.h"

enum {
	FUNCTIONS = 7,
	EACH = 7,                    /* blocks of a function */
	BLOCKS = FUNCTIONS * EACH,
	MOST = 4000,                 /* blocks executed */
	LONGEST = 7,                 /* path */
	ANCHORS = 40,
	EVENTS = 8,
	PARTS = 6,
	ROOM = 3 * MOST,
};

enum { ENTRY, CALL, BEHIND, SYSCALL, AFTER, RETURN, JUMP };

struct flow {
	struct ptm_block blocks[BLOCKS];
	int32_t executed[MOST];
	int n_executed;
	int64_t offsets[MOST + 1];
	int32_t values[MOST];
	size_t n_paths;
	int64_t seqs[MOST];
	int32_t paths[MOST];
	size_t n_rows;
	int64_t anchor_seqs[ANCHORS];
	int64_t anchor_times[ANCHORS];
	struct ptm_event events[EVENTS];
	size_t n_events;
};

/* What was found of a thread. */
struct found {
	struct ptm_mark marks[ROOM];
	size_t n_marks;
	struct ptm_visit visits[ROOM];
	size_t n_visits;
};

/* A walk with what it owns. */
struct walker {
	struct ptm_tree *tree;
	struct ptm_walk *walk;
	struct ptm_callers *callers;
	struct found found;
};

static int joined, folded, unfit, given_up, full;

static void make_code(struct flow *flow)
{
	static const uint8_t classes[EACH] = { PTM_COND_JUMP, PTM_CALL, PTM_COND_JUMP, PTM_SYSCALL, PTM_COND_JUMP, PTM_RETURN,
					       PTM_IND_JUMP };

	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint32_t function = i / EACH;

		flow->blocks[i] = (struct ptm_block){
			.addr = 0x1000 * (function + 1) + 8 * (i % EACH),
			.ip = 0x401000 + 0x1000 * function + 8 * (i % EACH),
			.size = 8,
			.last = 6,
			/* one of them has no name */
			.function = function ? PTM_FIRST_FUNCTION + function : PTM_UNKNOWN,
			.instructions = 1 + below(4),
			.cls = classes[i % EACH],
			.flags = (uint8_t)((i % EACH == ENTRY && function ? PTM_ENTRY : 0) | (below(12) ? 0 : PTM_MARKER) |
					   (below(12) ? 0 : PTM_ACCESS) | (below(12) ? 0 : PTM_OWN) |
					   (i % EACH == BEHIND && !function ? PTM_RESUMED : 0)),
		};
	}
}

static bool put(struct flow *flow, uint32_t function, int block)
{
	if (flow->n_executed == MOST)
		return false;
	flow->executed[flow->n_executed++] = (int32_t)function * EACH + block;
	return true;
}

/* Execute a function. `odd` is how seldom it does something odd. Returns false when there is no room any more, or an
 * exception is on its way to who called it. */
static bool execute(struct flow *flow, uint32_t function, uint32_t depth, uint32_t odd)
{
	if (!put(flow, function, ENTRY))
		return false;
	for (uint32_t i = below(depth ? 5 : 2); i; i--) {
		const uint32_t callee = below(FUNCTIONS);

		if (!below(odd)) { /* a handler: what it returns to was called by nobody */
			if (!put(flow, callee, SYSCALL) || !put(flow, 1, ENTRY) || !put(flow, 1, RETURN) ||
			    !put(flow, 2, ENTRY) || !put(flow, 2, SYSCALL) || !put(flow, function, BEHIND))
				return false;
		}
		if (!below(odd)) /* anything */
			put(flow, below(FUNCTIONS), (int)below(EACH));
		if (depth && below(3)) {
			if (!put(flow, function, CALL))
				return false;
			if (!execute(flow, callee, depth - 1, odd) && flow->n_executed == MOST)
				return false;
			if (!put(flow, function, BEHIND)) /* where execution goes on when something was thrown, too */
				return false;
		} else if (below(2) ? !put(flow, function, BEHIND)
				    : !put(flow, function, SYSCALL) || !put(flow, function, AFTER)) {
			return false;
		}
	}
	if (!below(odd)) { /* thrown: the one before the last of the blocks is nobody's return */
		put(flow, function, RETURN);
		return false;
	}
	if (below(6))
		return put(flow, function, RETURN);
	return put(flow, function, JUMP) && execute(flow, below(FUNCTIONS), depth ? depth - 1 : 0, odd); /* a tail call */
}

/* The number of a path of these blocks. */
static int32_t path_of(struct flow *flow, const int32_t *blocks, int64_t length)
{
	size_t path = 0;

	for (; path < flow->n_paths; path++)
		if (flow->offsets[path + 1] - flow->offsets[path] == length &&
		    !memcmp(&flow->values[flow->offsets[path]], blocks, (size_t)length * sizeof(*blocks)))
			return (int32_t)path;
	memcpy(&flow->values[flow->offsets[path]], blocks, (size_t)length * sizeof(*blocks));
	flow->offsets[path + 1] = flow->offsets[path] + length;
	flow->n_paths++;
	return (int32_t)path;
}

static void make_flow(struct flow *flow)
{
	const uint32_t odd = 3u << below(16), depth = 1 + below(12);
	int64_t seq = 0, t = 0;

	put(flow, 1, ENTRY);
	while (flow->n_executed < MOST) { /* in a loop; the first depths are of frames that are left one by one */
		put(flow, 1, CALL);
		execute(flow, below(FUNCTIONS), depth, odd);
		put(flow, 1, BEHIND);
	}
	for (int64_t done = 0, length; done < MOST; done += length, flow->n_rows++) {
		length = 1 + below(LONGEST);
		length = length < MOST - done ? length : MOST - done;
		flow->seqs[flow->n_rows] = seq;
		flow->paths[flow->n_rows] = path_of(flow, &flow->executed[done], length);
		seq += length + (below(400) ? 0 : 1 + below(5)); /* a hole */
	}
	for (int i = 0; i < ANCHORS; i++) {
		flow->anchor_seqs[i] = i ? flow->anchor_seqs[i - 1] + below(4) * below(70) : 0;
		flow->anchor_times[i] = t += below(3) ? below(1000) : (int64_t)(any() >> 8);
	}
	flow->n_events = below(3) ? 0 : below(EVENTS);
	for (size_t i = 0; i < flow->n_events; i++)
		flow->events[i] = (struct ptm_event){
			.seq = (i ? flow->events[i - 1].seq : 0) + below(MOST / 2),
			.from = flow->blocks[below(BLOCKS)].addr,
			.from_block = (int32_t)below(BLOCKS + 20) - 10,
			.to_block = (int32_t)below(BLOCKS + 20) - 10,
			.kind = 1 + (int32_t)below(5),
		};
}

static void fetch(struct walker *walker)
{
	struct found *found = &walker->found;
	size_t n;
	const struct ptm_mark *marks = ptm_walk_marks(walker->walk, &n);

	assert(found->n_marks + n <= ROOM);
	if (n)
		memcpy(&found->marks[found->n_marks], marks, n * sizeof(*marks));
	found->n_marks += n;
	const struct ptm_visit *visits = ptm_walk_visits(walker->walk, &n);

	assert(found->n_visits + n <= ROOM);
	if (n)
		memcpy(&found->visits[found->n_visits], visits, n * sizeof(*visits));
	found->n_visits += n;
}

/* Walk rows from `row` on to `end`; a part other than the first passes the moments before it. Returns 0, or what feeding
 * said. */
static int go(const struct flow *flow, struct walker *walker, size_t row, size_t end)
{
	size_t anchors = row ? ptm_walk_skip(walker->walk, flow->anchor_seqs, flow->anchor_times, ANCHORS) : 0;
	size_t events = 0, used_anchors, used_events;
	/* where the path before it ends: a hole is the part's */
	const int64_t begin = ptm_walk_next(walker->walk);

	while (row && events < flow->n_events && flow->events[events].seq < begin)
		events++;
	while (row < end) {
		const size_t batch = 1 + below((uint32_t)(end - row));
		const int64_t done = ptm_walk_feed(walker->walk, flow->seqs + row, flow->paths + row, batch,
						   flow->anchor_seqs + anchors, flow->anchor_times + anchors,
						   ANCHORS - anchors, flow->events + events, flow->n_events - events,
						   &used_anchors, &used_events);

		if (done < 0)
			return (int)done;
		row += (size_t)done;
		anchors += used_anchors;
		events += used_events;
		fetch(walker);
	}
	if (end == flow->n_rows)
		assert(!ptm_walk_end(walker->walk, flow->anchor_seqs + anchors, flow->anchor_times + anchors, ANCHORS - anchors));
	else
		ptm_walk_pause(walker->walk, flow->anchor_seqs + anchors, flow->anchor_times + anchors, ANCHORS - anchors);
	fetch(walker);
	return 0;
}

static struct walker *make_walker(struct ptm_program *program, size_t stacks, uint32_t depth)
{
	struct walker *walker = calloc(1, sizeof(*walker));

	assert(walker && !ptm_tree_create(stacks, depth, &walker->tree));
	assert(!ptm_callers_create(&walker->callers));
	assert(!ptm_walk_create(program, walker->tree, walker->callers, 0, &walker->walk));
	return walker;
}

static void drop_walker(struct walker *walker)
{
	ptm_walk_destroy(walker->walk);
	ptm_tree_destroy(walker->tree);
	ptm_callers_destroy(walker->callers);
	free(walker);
}

/* What a part found, behind what was found before it. */
static void take_found(struct walker *walker, const struct walker *part, const uint32_t *numbers)
{
	struct found *found = &walker->found;

	for (size_t i = 0; i < part->found.n_marks; i++) {
		found->marks[found->n_marks] = part->found.marks[i];
		found->marks[found->n_marks++].callers = numbers[part->found.marks[i].callers];
	}
	memcpy(&found->visits[found->n_visits], part->found.visits, part->found.n_visits * sizeof(*found->visits));
	found->n_visits += part->found.n_visits;
}

/* Walk a part on its own and join it. False when that cannot be. */
static bool walk_part(const struct flow *flow, struct walker *walker, struct walker *part, size_t row, size_t end,
		      size_t stacks, bool blind)
{
	static uint32_t numbers[ROOM];
	const int64_t begin = ptm_walk_next(walker->walk);
	int error = ptm_walk_begin_within(part->walk, begin, flow->paths[row - 1]);

	assert(!error);
	error = go(flow, part, row, end);
	if (error) {
		assert(error == -ECANCELED);
		given_up++;
		return false;
	}
	if (below(2))
		ptm_walk_forget(part->walk);
	if (!ptm_walk_fits(walker->walk, part->walk) && !blind) {
		unfit++;
		return false;
	}
	assert(!ptm_walk_callers(walker->walk, part->callers, walker->callers, numbers));
	error = ptm_walk_join(walker->walk, part->walk);
	if (error) {
		assert(error == -ENOSPC);
		full++;
		return false;
	}
	take_found(walker, part, numbers);
	folded += ptm_tree_size(walker->tree) > stacks;
	joined++;
	return true;
}

/* The stack is the one that a walk has which came there without joining anything. */
static void compare_stacks(const struct ptm_walk *walk, const struct ptm_walk *alone)
{
	const struct frames *one = &walk->frames, *other = &alone->frames;

	assert(one->n == other->n && one->folded == other->folded && one->signal == other->signal &&
	       one->beyond == other->beyond && one->credit == other->credit);
	for (size_t i = 0; i < one->n; i++)
		assert(one->items[i].node == other->items[i].node && one->items[i].function == other->items[i].function &&
		       one->items[i].ret == other->items[i].ret && one->items[i].block == other->items[i].block);
}

static void walk_in_parts(const struct flow *flow, struct ptm_program *program, struct walker *walker, size_t stacks,
			  uint32_t depth, bool blind)
{
	size_t row = 1 + below((uint32_t)flow->n_rows / 2);
	struct walker *alone = make_walker(program, stacks, depth);

	assert(!go(flow, walker, 0, row) && !go(flow, alone, 0, row));
	for (int i = 0; row < flow->n_rows; i++) {
		const size_t left = flow->n_rows - row, end = i < PARTS ? row + 1 + below((uint32_t)left) : flow->n_rows;
		struct walker *part = make_walker(program, below(3) ? stacks : 2 + below(60), depth);

		if (!walk_part(flow, walker, part, row, end, stacks, blind))
			assert(!go(flow, walker, row, end));
		drop_walker(part);
		assert(!go(flow, alone, row, end));
		compare_stacks(walker->walk, alone->walk);
		row = end;
	}
	drop_walker(alone);
}

static void compare(const struct walker *whole, const struct walker *parts)
{
	const size_t size = ptm_tree_size(whole->tree);
	size_t n, others;
	int64_t folds[6];

	assert(ptm_tree_size(parts->tree) == size);
	for (size_t i = 0; i < size; i++) {
		const struct ptm_node *one = &ptm_tree_nodes(whole->tree)[i], *other = &ptm_tree_nodes(parts->tree)[i];

		assert(one->parent == other->parent && one->function == other->function && one->block == other->block &&
		       one->depth == other->depth && one->thread == other->thread);
		assert(!memcmp(&one->calls, &other->calls, sizeof(*one) - offsetof(struct ptm_node, calls)));
	}
	ptm_tree_touched(whole->tree, &n);
	ptm_tree_touched(parts->tree, &others);
	assert(n == others);
	ptm_walk_folds(whole->walk, &folds[0], &folds[1], &folds[2]);
	ptm_walk_folds(parts->walk, &folds[3], &folds[4], &folds[5]);
	assert(!memcmp(folds, folds + 3, 3 * sizeof(*folds)));
	assert(ptm_walk_next(whole->walk) == ptm_walk_next(parts->walk));
	assert(whole->found.n_marks == parts->found.n_marks && whole->found.n_visits == parts->found.n_visits);
	assert(!memcmp(whole->found.marks, parts->found.marks, whole->found.n_marks * sizeof(*whole->found.marks)));
	assert(!memcmp(whole->found.visits, parts->found.visits, whole->found.n_visits * sizeof(*whole->found.visits)));
	const struct ptm_returns *lists = ptm_callers_items(whole->callers, &n);
	const struct ptm_returns *other_lists = ptm_callers_items(parts->callers, &others);

	assert(n == others && !memcmp(lists, other_lists, n * sizeof(*lists)));
}

int main(int argc, char **argv)
{
	const int flows = argc > 1 ? atoi(argv[1]) : 100;
	const bool blind = argc > 2 && !strcmp(argv[2], "blind");

	for (int i = 0; i < flows; i++) {
		struct flow *flow = calloc(1, sizeof(*flow));
		const size_t stacks = below(4) ? 100000 : 2 + below(300);
		const uint32_t depth = below(4) ? 512 : 2 + below(12);
		struct ptm_program *program;

		assert(flow);
		make_code(flow);
		make_flow(flow);
		assert(!ptm_program_create(flow->blocks, BLOCKS, flow->offsets, flow->values, (size_t)flow->offsets[flow->n_paths],
					   flow->n_paths, &program));
		assert(!ptm_program_digest(program));
		struct walker *whole = make_walker(program, stacks, depth), *parts = make_walker(program, stacks, depth);

		assert(!go(flow, whole, 0, flow->n_rows));
		walk_in_parts(flow, program, parts, stacks, depth, blind);
		compare(whole, parts);
		drop_walker(whole);
		drop_walker(parts);
		ptm_program_destroy(program);
		free(flow);
	}
	printf("%d flows: %d parts joined, %d to a full tree, %d given up, %d unfit, %d too large\n", flows, joined, folded,
	       given_up, unfit, full);
	return 0;
}
