/* SPDX-License-Identifier: MIT */
/* Remembering paths and executing them again; what is done is what the walk would do, to the last nanosecond. */
#include "replay.h"

#include <errno.h>
#include <string.h>

enum {
	SHORTEST = 4, /* blocks: shorter paths are walked as quickly as looked up */
};

/* True when the top frame's node and the block before say all that a walk of the path depends on. */
static bool knows_stack(const struct ptm_walk *walk)
{
	const struct frames *frames = &walk->frames;

	return frames->n && !frames->signal && !frames->beyond && !frames->folded && walk->before && !walk->sigreturn &&
	       !frames->want_calls;
}

static struct memo_key key_of(const struct ptm_walk *walk, uint32_t number)
{
	return (struct memo_key){ .path = number, .node = frames_top(&walk->frames)->node,
				  .before = (uint32_t)(walk->before - walk->program->blocks) };
}

/* --- again ----------------------------------------------------------------------------------------------------------- */

/* For the first time in this window: its nodes are met in the order in which the walk would meet them. */
static void open_entry(struct ptm_walk *walk, struct memo_entry *entry)
{
	struct ptm_tree *tree = walk->frames.tree;
	struct memo *memo = &walk->memo;

	for (uint32_t i = 0; i < entry->n_steps; i++) {
		const struct tape_step *step = &memo->steps[entry->step + i];

		tree_touch(tree, step->node);
		if (step->called != PTM_NONE)
			tree_touch(tree, step->called);
	}
	entry->window = tree->window;
	entry->times = 0;
	memo->used[memo->n_used++] = (uint32_t)(entry - memo->entries);
}

/* What steps count is only counted here. */
static void do_steps(struct ptm_walk *walk, struct memo_entry *entry, const struct path *path)
{
	struct frames *frames = &walk->frames;

	if (frames->mark != walk->next || frames->blocks)
		frames_settle(frames, walk->next);
	if (entry->times == UINT32_MAX)
		replay_settle(walk);
	if (entry->window != frames->tree->window)
		open_entry(walk, entry);
	frames->mark = walk->next + path->length;
	entry->times++;
}

static void settle(struct ptm_walk *walk, const struct memo_entry *entry)
{
	struct ptm_node *nodes = walk->frames.tree->nodes;
	const struct tape_step *step = &walk->memo.steps[entry->step];
	const int64_t times = entry->times;
	uint32_t offset = 0;

	for (const struct tape_step *end = step + entry->n_steps; step < end; step++) {
		nodes[step->node].instructions += times * step->instructions;
		nodes[step->node].blocks += times * step->blocks;
		nodes[step->node].ran += times * (step->offset - offset);
		if (step->called != PTM_NONE)
			nodes[step->called].calls += times;
		offset = step->offset;
	}
}

void replay_settle(struct ptm_walk *walk)
{
	struct memo *memo = &walk->memo;

	for (uint32_t i = 0; i < memo->n_used; i++) {
		settle(walk, &memo->entries[memo->used[i]]);
		memo->entries[memo->used[i]].window = 0;
	}
	memo->n_used = 0;
}

static int put_frames(struct ptm_walk *walk, const struct memo_entry *entry)
{
	struct frames *frames = &walk->frames;
	const int error = frames_reserve(frames, entry->n_frames);

	if (error)
		return error;
	frames->n -= entry->dropped;
	for (uint32_t i = 0; i < entry->n_frames; i++) /* of one or two a call of memcpy costs more than the copy */
		frames->items[frames->n++] = walk->memo.frames[entry->frame + i];
	frames->next_call += entry->entered;
	frames->credit += entry->credit;
	frames->folds[TREE_WHOLE] += entry->calls;
	return 0;
}

static int put_places(struct ptm_walk *walk, const struct memo_entry *entry)
{
	int error = 0;

	for (uint32_t i = 0; !error && i < entry->n_marks; i++) {
		struct ptm_mark mark = walk->memo.marks[entry->mark + i];

		mark.seq += walk->next;
		error = walk_put_mark(walk, &mark);
	}
	for (uint32_t i = 0; !error && i < entry->n_visits; i++) {
		const struct ptm_visit *visit = &walk->memo.visits[entry->visit + i];

		error = visits_put(&walk->visits, walk->next + visit->seq, (uint32_t)visit->block,
				   (enum ptm_visit_kind)visit->kind);
	}
	return error;
}

static int repeat(struct ptm_walk *walk, struct memo_entry *entry, const struct path *path)
{
	int error;

	do_steps(walk, entry, path);
	error = put_frames(walk, entry);
	if (!error && (entry->n_marks || entry->n_visits))
		error = put_places(walk, entry);
	walk->before = &walk->program->blocks[path->last];
	return error;
}

int replay_path(struct ptm_walk *walk, uint32_t number)
{
	const struct path *path = &walk->program->paths[number];
	struct memo_entry *entry;
	int met;

	if (path->length < SHORTEST || !knows_stack(walk))
		return REPLAY_WALK;
	entry = memo_find(&walk->memo, key_of(walk, number));
	if (entry && timeline_is_clear(&walk->timeline, walk->next + path->length)) {
		const int error = repeat(walk, entry, path);

		return error ? error : REPLAY_DONE;
	}
	if (entry)
		return REPLAY_WALK;
	met = memo_meet(&walk->memo, key_of(walk, number));
	if (met < 0)
		return met;
	return met ? REPLAY_RECORD : REPLAY_WALK;
}

/* --- the first time -------------------------------------------------------------------------------------------------- */

int replay_begin(struct ptm_walk *walk, uint32_t number)
{
	struct frames *frames = &walk->frames;

	walk_now(walk, walk->next);
	frames_settle(frames, walk->next);
	walk->recorded = (struct recorded){
		.key = key_of(walk, number),
		.frames = frames->n,
		.marks = walk->n_marks,
		.visits = walk->visits.n,
		.calls = frames->folds[TREE_WHOLE],
		.entered = frames->next_call,
		.credit = frames->credit,
	};
	return tape_begin(&frames->tape, walk->next, frames->n);
}

/* Nothing is counted that an entry has no room for. */
static bool fits(const struct ptm_walk *walk)
{
	const struct recorded *from = &walk->recorded;

	return walk->frames.tape.n <= UINT16_MAX && walk->frames.n - walk->frames.tape.low <= UINT16_MAX &&
	       walk->n_marks - from->marks <= UINT16_MAX && walk->visits.n - from->visits <= UINT16_MAX;
}

static struct memo_entry entry_of(const struct ptm_walk *walk)
{
	const struct recorded *from = &walk->recorded;
	const struct frames *frames = &walk->frames;
	const struct tape *tape = &frames->tape;

	return (struct memo_entry){
		.key = from->key,
		.dropped = (uint32_t)(from->frames - tape->low),
		.n_steps = (uint16_t)tape->n,
		.n_frames = (uint16_t)(frames->n - tape->low),
		.n_marks = (uint16_t)(walk->n_marks - from->marks),
		.n_visits = (uint16_t)(walk->visits.n - from->visits),
		.calls = (uint32_t)(frames->folds[TREE_WHOLE] - from->calls),
		.entered = (uint32_t)(frames->next_call - from->entered),
		.credit = (uint32_t)(frames->credit - from->credit),
	};
}

static void copy(struct ptm_walk *walk, const struct memo_entry *entry)
{
	const struct frames *frames = &walk->frames;
	struct memo *memo = &walk->memo;

	memcpy(&memo->steps[entry->step], frames->tape.steps, entry->n_steps * sizeof(*memo->steps));
	memcpy(&memo->frames[entry->frame], &frames->items[frames->tape.low], entry->n_frames * sizeof(*memo->frames));
	for (uint32_t i = 0; i < entry->n_marks; i++) {
		memo->marks[entry->mark + i] = walk->marks[walk->recorded.marks + i];
		memo->marks[entry->mark + i].seq -= frames->tape.seq;
	}
	for (uint32_t i = 0; i < entry->n_visits; i++) {
		memo->visits[entry->visit + i] = walk->visits.items[walk->recorded.visits + i];
		memo->visits[entry->visit + i].seq -= frames->tape.seq;
	}
}

int replay_store(struct ptm_walk *walk)
{
	struct tape *tape = &walk->frames.tape;
	struct memo *memo = &walk->memo;
	const int64_t end = tape->seq + walk->program->paths[walk->recorded.key.path].length;

	walk_arrival(walk, end);
	frames_settle(&walk->frames, end);
	tape->on = false;
	/* the bottom's frame is entered otherwise: whether that was a call depends on what was before it */
	if (tape->failed || !tape->low || !knows_stack(walk) || !fits(walk))
		return 0;
	const struct memo_entry entry = entry_of(walk);
	if (!memo_fits(memo, &entry)) {
		replay_settle(walk);
		memo_forget(memo);
	}
	if (!memo_fits(memo, &entry))
		return 0;
	copy(walk, memo_add(memo, &entry));
	return 0;
}
