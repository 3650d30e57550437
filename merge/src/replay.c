/* SPDX-License-Identifier: MIT */
/*
 * Remembering paths and executing them again; what is counted is what the walk would count.
 *
 * While known paths follow each other, the stack is its top frame's node alone: frames are made of it when something
 * has to be walked. What a path's steps count is added up once, when the thread ends, for all the times it was executed.
 */
#include "replay.h"

#include <errno.h>
#include <string.h>

#define MOST_TIME (UINT64_C(1) << 62) /* of a block that an entry sums, and of a sum that is added to */

/* True when the top frame's node and the block before say all that a walk of a path depends on. */
static bool knows_stack(const struct ptm_walk *walk)
{
	const struct frames *frames = &walk->frames;

	return frames->n && !frames->signal && !frames->beyond && !frames->folded && walk->before && !walk->sigreturn &&
	       !frames->want_calls;
}

static struct memo_key key_of(const struct ptm_walk *walk, uint32_t number)
{
	return (struct memo_key){ .path = number, .node = frames_top(&walk->frames)->node,
				  .manner = program_manner(walk->program, walk->before) };
}

/* --- again ----------------------------------------------------------------------------------------------------------- */

static int put_places(struct ptm_walk *walk, const struct memo_places *places)
{
	int error = 0;

	for (uint32_t i = 0; !error && i < places->n_marks; i++) {
		struct ptm_mark mark = walk->memo.marks[places->mark + i];

		mark.seq += walk->next;
		error = walk_put_mark(walk, &mark);
	}
	for (uint32_t i = 0; !error && i < places->n_visits; i++) {
		const struct ptm_visit *visit = &walk->memo.visits[places->visit + i];

		error = visits_put(&walk->visits, walk->next + visit->seq, (uint32_t)visit->block,
				   (enum ptm_visit_kind)visit->kind);
	}
	return error;
}

/* A path in which a moment lies: its steps get their times one by one. */
static void spend_steps(struct ptm_walk *walk, const struct memo_entry *entry)
{
	struct frames *frames = &walk->frames;
	const struct tape_step *step = &walk->memo.steps[entry->step], *end = step + entry->n_steps;

	for (; step < end; step++) {
		struct ptm_node *node = tree_touch(frames->tree, tape_node(step));
		const int64_t x = walk->next + step->offset;

		/* at a path's end the moments of its last ordinal are still to come: see walk_arrival */
		while (step->offset < entry->length ? !timeline_is_clear(&walk->timeline, x)
						    : timeline_is_behind(&walk->timeline, x))
			walk_pass(walk, node);
		frames_spend(frames, node, x);
	}
}

/* The last ordinal up to which a path may go that begins and ends in this stretch of time, and whose blocks do not take so
 * long that no sum of them would fit. */
static int64_t stretch_end(const struct ptm_walk *walk)
{
	const struct timeline *line = &walk->timeline;

	if (line->rate > MOST_TIME)
		return -1;
	return line->next < line->n ? line->seqs[line->next] - 1 : INT64_MAX;
}

static int64_t first_event(const struct ptm_walk *walk)
{
	return walk->next_event < walk->n_events ? walk->events[walk->next_event].seq : INT64_MAX;
}

static void settle(struct ptm_walk *walk, struct memo_entry *entry)
{
	struct ptm_tree *tree = walk->frames.tree;
	const struct tape_step *step = &walk->memo.steps[entry->step];
	const int64_t total = (int64_t)entry->total;
	uint32_t offset = 0;

	for (const struct tape_step *end = step + entry->n_steps; step < end; step++) {
		struct ptm_node *node = tree_touch(tree, tape_node(step));
		const uint32_t blocks = step->offset - offset;

		node->instructions += total * step->instructions;
		node->blocks += total * blocks;
		tree_spend(node, (timeline_ns)entry->time * blocks);
		if (step->node & TAPE_CALLED)
			node->calls += total;
		offset = step->offset;
	}
	walk->frames.folds[TREE_WHOLE] += total * entry->calls;
	entry->total = 0;
	entry->time = 0;
}

static void count(struct ptm_walk *walk, struct memo_entry *entry)
{
	struct memo *memo = &walk->memo;

	if (!entry->total)
		memo->used[memo->n_used++] = (uint32_t)(entry - memo->entries);
	else if (entry->total == MEMO_COUNTED || entry->time > MOST_TIME)
		settle(walk, entry); /* and is still in `used` */
	entry->total++;
}

/* The entry that comes after `before`: one of those that did lately, or another one. What comes after an entry begins in
 * the same stack, so that its path alone tells it. */
static struct memo_entry *find_after(struct memo *memo, struct memo_entry *before, struct memo_key key)
{
	struct memo_entry *entry;

	for (size_t i = 0; i < MEMO_FOLLOWING; i++) {
		if (before->after[i] != (uint16_t)key.path || !before->following[i])
			continue;
		entry = &memo->entries[before->following[i] - 1];
		if (memo_is(entry, key))
			return entry;
	}
	entry = memo_find(memo, key);
	if (!entry)
		return NULL;
	before->following[1] = before->following[0];
	before->after[1] = before->after[0];
	before->following[0] = (uint32_t)(entry - memo->entries) + 1;
	before->after[0] = (uint16_t)key.path;
	return entry;
}

/* Paths from `entry` on, which is the first one's; without `seqs` each begins where the one before it ended. The stack of
 * frames is left as it was. */
static int64_t repeat(struct ptm_walk *walk, struct memo_entry *entry, const int64_t *seqs, const int32_t *paths,
		      size_t n, struct memo_entry **ret)
{
	struct memo *memo = &walk->memo;
	struct frames *frames = &walk->frames;
	const int64_t event = first_event(walk);
	int64_t stretch = stretch_end(walk);
	struct memo_entry *lately[MEMO_AHEAD] = { NULL };
	size_t done = 0;

	for (;;) {
		const int64_t end = walk->next + entry->length;

		if (end > event)
			break;
		count(walk, entry);
		memo_look_ahead(memo, entry, &lately[done % MEMO_AHEAD]);
		if (end > stretch) {
			spend_steps(walk, entry);
			stretch = stretch_end(walk);
		} else {
			entry->time += (uint64_t)walk->timeline.rate;
			frames->mark = end;
		}
		frames->credit += entry->credit;
		if (entry->place) {
			const int error = put_places(walk, &memo->places[entry->place - 1]);

			if (error)
				return error;
		}
		walk->next = end;
		*ret = entry;
		done++;
		if (done == n || (seqs && seqs[done] != end) || paths[done] < 0 || walk_has_output(walk))
			break;
		walk_fetch(walk, paths + done, n - done);
		entry = find_after(memo, entry, (struct memo_key){
			.path = (uint32_t)paths[done], .node = entry->node, .manner = entry->manner });
		if (!entry)
			break;
	}
	return (int64_t)done;
}

int64_t replay_paths(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n)
{
	struct memo_entry *entry, *last = NULL;
	int64_t done;

	if (!knows_stack(walk))
		return 0;
	entry = memo_find(&walk->memo, key_of(walk, (uint32_t)paths[0]));
	if (!entry || walk->next + entry->length > first_event(walk))
		return 0;
	walk_arrival(walk, walk->next);
	frames_settle(&walk->frames, walk->next);
	done = repeat(walk, entry, seqs, paths, n, &last);
	if (done <= 0)
		return done;
	walk->before = &walk->program->blocks[walk->program->paths[last->key.path].last];
	const int error = frames_become(&walk->frames, last->node, walk->program->blocks);

	return error ? error : done;
}

void replay_settle(struct ptm_walk *walk)
{
	struct memo *memo = &walk->memo;

	for (uint32_t i = 0; i < memo->n_used; i++)
		settle(walk, &memo->entries[memo->used[i]]);
	memo->n_used = 0;
}

/* --- the first time -------------------------------------------------------------------------------------------------- */

int replay_wants(struct ptm_walk *walk, uint32_t number)
{
	return knows_stack(walk) ? memo_meet(&walk->memo, key_of(walk, number)) : 0;
}

int replay_begin(struct ptm_walk *walk, uint32_t number)
{
	struct frames *frames = &walk->frames;

	walk_now(walk, walk->next);
	frames_settle(frames, walk->next);
	walk->recorded = (struct recorded){
		.key = key_of(walk, number),
		.marks = walk->n_marks,
		.visits = walk->visits.n,
		.calls = frames->folds[TREE_WHOLE],
		.credit = frames->credit,
	};
	return tape_begin(&frames->tape, walk->next, frames->n);
}

static void copy(struct ptm_walk *walk, const struct memo_entry *entry, const struct memo_places *places)
{
	const struct tape *tape = &walk->frames.tape;
	struct memo *memo = &walk->memo;

	memcpy(&memo->steps[entry->step], tape->steps, entry->n_steps * sizeof(*memo->steps));
	for (uint32_t i = 0; i < places->n_marks; i++) {
		memo->marks[places->mark + i] = walk->marks[walk->recorded.marks + i];
		memo->marks[places->mark + i].seq -= tape->seq;
	}
	for (uint32_t i = 0; i < places->n_visits; i++) {
		memo->visits[places->visit + i] = walk->visits.items[walk->recorded.visits + i];
		memo->visits[places->visit + i].seq -= tape->seq;
	}
}

int replay_store(struct ptm_walk *walk)
{
	const struct recorded *from = &walk->recorded;
	const struct path *path = &walk->program->paths[from->key.path];
	struct frames *frames = &walk->frames;
	struct tape *tape = &frames->tape;
	struct memo *memo = &walk->memo;
	const int64_t end = tape->seq + path->length;

	walk_arrival(walk, end);
	frames_settle(frames, end);
	tape->on = false;
	/* the bottom's frame is entered otherwise: whether that was a call depends on what was before it */
	if (tape->failed || tape->called != PTM_NONE || !tape->low || !knows_stack(walk))
		return 0;
	const struct memo_entry entry = {
		.key = from->key,
		.node = frames_top(frames)->node,
		.manner = program_manner(walk->program, &walk->program->blocks[path->last]),
		.length = (uint16_t)path->length,
		.n_steps = (uint16_t)tape->n,
		.calls = (uint16_t)(frames->folds[TREE_WHOLE] - from->calls),
		.credit = (uint16_t)(frames->credit - from->credit),
	};
	struct memo_places places = { .n_marks = (uint32_t)(walk->n_marks - from->marks),
				      .n_visits = (uint32_t)(walk->visits.n - from->visits) };
	if (!memo_fits(memo, &entry, &places)) {
		replay_settle(walk);
		memo_forget(memo);
	}
	if (!memo_fits(memo, &entry, &places))
		return 0;
	copy(walk, memo_add(memo, &entry, &places), &places);
	return 0;
}
