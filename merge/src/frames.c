/* SPDX-License-Identifier: MIT */
/* The shadow call stack. Grows by doubling up to FRAMES_MAX; searches that fail are paid for by earlier calls. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>

enum {
	FIRST_FRAMES = 256,
	FIRST_CALLS = 4096,
	SEARCH_EARNED = 8,   /* and more for every call made */
};

void frames_init(struct frames *frames, struct ptm_tree *tree, const struct timeline *line, bool want_calls)
{
	*frames = (struct frames){ .tree = tree, .line = line, .want_calls = want_calls };
}

void frames_deinit(struct frames *frames)
{
	free(frames->items);
	free(frames->calls);
	tape_deinit(&frames->tape);
	frames->items = NULL;
	frames->calls = NULL;
}

void frames_begin(struct frames *frames)
{
	frames->n = 0;
	frames->beyond = 0;
	frames->signal = 0;
	frames->credit = 0;
	frames->folded = 0;
	frames->far = false;
	frames->tape.on = false;
	frames->instructions = frames->blocks = frames->mark = 0;
	frames->next_call = 0;
}

void frames_settle(struct frames *frames, int64_t x)
{
	struct ptm_node *node = frames->n ? tree_touch(frames->tree, frames_top(frames)->node) : NULL;

	frames_spend(frames, node, x);
	if (node) {
		node->instructions += frames->instructions;
		node->blocks += frames->blocks;
		if (frames->tape.on)
			tape_settle(&frames->tape, x, frames_top(frames)->node, frames->instructions);
	}
	frames->instructions = frames->blocks = 0;
}

static void count_call(struct frames *frames, uint32_t number, enum tree_fold fold)
{
	tree_touch(frames->tree, number)->calls++;
	frames->folds[fold]++;
	if (frames->tape.on)
		tape_call(&frames->tape, number);
}

/* Write the row of a call that ends here. */
static int finish(struct frames *frames, size_t index, int64_t x, int64_t t)
{
	const struct frame *frame = &frames->items[index];

	if (!frames->want_calls)
		return 0;
	if (frames->n_calls == frames->calls_room) {
		const size_t room = frames->calls_room ? 2 * frames->calls_room : FIRST_CALLS;
		struct ptm_call *calls = realloc(frames->calls, room * sizeof(*calls));

		if (!calls)
			return -ENOMEM;
		frames->calls = calls;
		frames->calls_room = room;
	}
	frames->calls[frames->n_calls++] = (struct ptm_call){
		.call = frame->call,
		.parent = index ? frames->items[index - 1].call : -1,
		.seq = frame->seq,
		.seq_end = x,
		.t_enter = frame->t,
		.t_exit = t,
		.node = frame->node,
		.depth = (uint32_t)index + 1,
	};
	return 0;
}

int frames_reserve(struct frames *frames, size_t more)
{
	size_t room = frames->room ? 2 * frames->room : FIRST_FRAMES;
	struct frame *items;

	if (frames->n + more <= frames->room)
		return 0;
	while (room < frames->n + more)
		room *= 2;
	items = realloc(frames->items, room * sizeof(*items));
	if (!items)
		return -ENOMEM;
	frames->items = items;
	frames->room = room;
	return 0;
}

/* The top frame's node is not its whole stack. */
static void note_fold(struct frames *frames)
{
	if (!frames->folded)
		frames->folded = frames->n;
	frames->tape.failed = true;
}

/* Put a frame on top of the `n` there are. */
static int put(struct frames *frames, struct frame frame, bool called)
{
	const uint32_t parent = frames->n ? frames_top(frames)->node : PTM_NONE;
	enum tree_fold fold;
	int error;

	error = tree_child(frames->tree, parent, frame.function, frame.block, &fold, &frame.node);
	if (error)
		return error;
	__builtin_prefetch(tree_line(frames->tree, frame.node)); /* it will make calls */
	if (called)
		count_call(frames, frame.node, fold);
	frame.call = frames->next_call++;
	frames->items[frames->n++] = frame;
	if (fold != TREE_WHOLE)
		note_fold(frames);
	return 0;
}

/* A frame that is not kept: only its call is counted. */
static int enter_beyond(struct frames *frames, uint32_t function, uint32_t block, bool called)
{
	enum tree_fold fold;
	uint32_t node;
	int error;

	frames->beyond++;
	if (!called)
		return 0;
	error = tree_child(frames->tree, frames_top(frames)->node, function, block, &fold, &node);
	if (!error)
		count_call(frames, node, TREE_DEEP);
	return error;
}

int frames_enter(struct frames *frames, int64_t x, int64_t t, uint64_t ret, uint32_t function, uint32_t block,
		 bool called)
{
	struct frame frame = { .ret = ret, .function = function, .block = block, .seq = x, .t = t };
	int error;

	frames->credit += SEARCH_EARNED;
	if (frames->n == FRAMES_MAX)
		return enter_beyond(frames, function, block, called);
	frames_settle(frames, x);
	error = frames_reserve(frames, 1);
	if (error)
		return error;
	if (function == PTM_SIGNAL) {
		frame.outer = frames->signal;
		frames->signal = (uint32_t)frames->n + 1;
	}
	return put(frames, frame, called);
}

/* Frames are gone. */
static void lowered(struct frames *frames)
{
	if (frames->folded > frames->n)
		frames->folded = 0;
	tape_low(&frames->tape, frames->n);
}

int frames_leave(struct frames *frames, int64_t x, int64_t t, size_t n)
{
	int error = 0;

	frames_settle(frames, x);
	frames->beyond = 0;
	while (!error && frames->n > n) {
		const struct frame *top = frames_top(frames);

		error = finish(frames, frames->n - 1, x, t);
		if (top->function == PTM_SIGNAL)
			frames->signal = top->outer;
		frames->n--;
	}
	lowered(frames);
	return error;
}

int frames_replace(struct frames *frames, int64_t x, int64_t t, uint32_t function, bool called)
{
	struct frame frame = *frames_top(frames);
	int error;

	frames_settle(frames, x);
	error = finish(frames, frames->n - 1, x, t);
	if (error)
		return error;
	frames->n--;
	lowered(frames);
	frame.function = function;
	frame.seq = x;
	frame.t = t;
	return put(frames, frame, called);
}

int frames_presume(struct frames *frames, int64_t x, uint32_t function, uint32_t level)
{
	const struct frame frame = { .function = function, .block = level, .seq = x };
	const int error = frames_reserve(frames, 1);

	return error ? error : put(frames, frame, false);
}

int frames_become(struct frames *frames, uint32_t node, const struct ptm_block *blocks)
{
	const struct ptm_node *nodes = frames->tree->nodes;
	const size_t n = nodes[node].depth;
	const int error = n > frames->n ? frames_reserve(frames, n - frames->n) : 0;

	if (error)
		return error;
	/* whatever lies below a frame of the same node is the same */
	for (size_t at = n; at-- > 0 && (at >= frames->n || frames->items[at].node != node); node = nodes[node].parent) {
		const uint32_t block = nodes[node].block;

		frames->items[at] = (struct frame){
			.ret = at && block != PTM_NONE ? blocks[block].addr + blocks[block].size : 0,
			.node = node,
			.function = nodes[node].function,
			.block = block,
		};
	}
	frames->n = n;
	return 0;
}

/* How many frames a search may look at, from the top. */
static size_t reach(const struct frames *frames)
{
	const uint64_t limit = SEARCH_ALWAYS + frames->credit;

	return frames->n < limit ? frames->n : (size_t)limit;
}

static void pay(struct frames *frames, size_t looked)
{
	const size_t cost = looked > SEARCH_ALWAYS ? looked - SEARCH_ALWAYS : 0;

	frames->credit -= cost < frames->credit ? cost : frames->credit;
}

/* A search that looked further than any may has an outcome that depends on the calls before it. */
static void note_search(struct frames *frames, size_t looked)
{
	if (looked > SEARCH_ALWAYS)
		frames->tape.failed = frames->far = true;
}

size_t frames_find_function(struct frames *frames, uint32_t function)
{
	const size_t limit = reach(frames);

	for (size_t looked = 1; looked < limit; looked++) {
		if (frames->items[frames->n - 1 - looked].function == function) {
			note_search(frames, looked + 1);
			return frames->n - looked;
		}
	}
	note_search(frames, limit);
	pay(frames, limit);
	return 0;
}

bool frames_returns_to(const struct frame *frame, const struct ptm_block *blocks, const struct ptm_block *to)
{
	if (frame->function == PTM_SIGNAL)
		return false;
	if (frame->ret && frame->ret == to->addr)
		return true;
	return frame->block != PTM_NONE && frame->ret && blocks[frame->block].ip + blocks[frame->block].size == to->ip;
}

/* Frames left when the innermost one of the `limit` upmost that returns to `to` returns; SIZE_MAX none found. */
static size_t find_return(const struct frames *frames, size_t limit, const struct ptm_block *blocks,
			  const struct ptm_block *to)
{
	for (size_t looked = 0; looked < limit; looked++)
		if (frames_returns_to(&frames->items[frames->n - 1 - looked], blocks, to))
			return frames->n - 1 - looked;
	return SIZE_MAX;
}

size_t frames_find_return(struct frames *frames, const struct ptm_block *blocks, const struct ptm_block *to)
{
	const size_t limit = reach(frames), left = find_return(frames, limit, blocks, to);

	note_search(frames, left == SIZE_MAX ? limit : frames->n - left);
	if (left == SIZE_MAX)
		pay(frames, limit);
	return left;
}

size_t frames_find_near_return(const struct frames *frames, const struct ptm_block *blocks, const struct ptm_block *to)
{
	return find_return(frames, frames->n < SEARCH_ALWAYS ? frames->n : SEARCH_ALWAYS, blocks, to);
}
