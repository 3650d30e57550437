/* SPDX-License-Identifier: MIT */
/* Walking a part of a thread, and joining it to the walk of what ran before it. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#include "callers.h"
#include "replay.h"
#include "walk.h"

enum {
	FIRST_ROOM = 64,
	MOST_LEVELS = 1 << 16, /* a part that presumes more is hardly right */
	MOST_DENIED = 1 << 20,
};

/* What a part may look at of its stack before any call is made: all of it. */
#define CREDIT (UINT64_C(1) << 40)

void part_deinit(struct part *part)
{
	free(part->levels);
	free(part->denied);
	*part = (struct part){ .levels = NULL };
}

/* Room for one more of what `items` has `n` of. */
static int make_room(void **items, size_t n, size_t *room, size_t size)
{
	const size_t wanted = *room ? 2 * *room : FIRST_ROOM;
	void *more;

	if (n < *room)
		return 0;
	more = realloc(*items, wanted * size);
	if (!more)
		return -ENOMEM;
	*items = more;
	*room = wanted;
	return 0;
}

static int presume(struct ptm_walk *walk, int64_t x, uint32_t function, const struct ptm_block *to)
{
	struct part *part = &walk->part;
	const int error = part->n == MOST_LEVELS
		? -ECANCELED : make_room((void **)&part->levels, part->n, &part->room, sizeof(*part->levels));

	if (error)
		return error;
	part->levels[part->n] = (struct presumed){ .function = function, .to = to };
	return frames_presume(&walk->frames, x, function, (uint32_t)part->n++);
}

static int deny(struct ptm_walk *walk, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;
	struct part *part = &walk->part;
	const int error = part->n_denied == MOST_DENIED
		? -ECANCELED : make_room((void **)&part->denied, part->n_denied, &part->denied_room, sizeof(*part->denied));

	if (error)
		return error;
	part->denied[part->n_denied++] = (struct denied){
		.to = to,
		.level = frames->items[0].block,
		.frames = (uint32_t)frames->n,
		.credit = frames->credit - CREDIT,
	};
	frames->tape.failed = true; /* every one is to be noted */
	return 0;
}

int part_return(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	int error;

	if (walk->frames.n > 1)
		return deny(walk, to);
	error = frames_leave(&walk->frames, x, walk_now(walk, x), 0);
	return error ? error : presume(walk, x, to->function, to);
}

int ptm_walk_begin_within(struct ptm_walk *walk, int64_t seq, int32_t before)
{
	const struct ptm_program *program = walk->program;

	ptm_walk_begin(walk);
	if (before < 0 || (size_t)before >= program->n_paths || !program->paths[before].length)
		return -EINVAL;
	walk->begun = true;
	walk->called = false;
	walk->frames.credit = CREDIT;
	walk->next = walk->part.first = walk->frames.mark = seq;
	walk->before = &program->blocks[program->paths[before].last];
	return presume(walk, seq, walk->before->function, NULL);
}

size_t ptm_walk_skip(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors)
{
	struct timeline *line = &walk->timeline;

	timeline_init(line);
	timeline_supply(line, anchor_seqs, anchor_times, n_anchors);
	while (timeline_is_behind(line, walk->next))
		timeline_pass(line);
	return line->next;
}

void ptm_walk_pause(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors)
{
	timeline_supply(&walk->timeline, anchor_seqs, anchor_times, n_anchors);
	walk_arrival(walk, walk->next);
	frames_settle(&walk->frames, walk->next);
	replay_settle(walk);
}

void ptm_walk_forget(struct ptm_walk *walk)
{
	memo_deinit(&walk->memo);
}

/* --- joining ----------------------------------------------------------------------------------------------------- */

/* Frames below that of a level, when the part began. Behind a gap less of the stack is known than there is: who returns from
 * its bottom is at the bottom again. */
static size_t below(const struct frames *frames, size_t level)
{
	return level < frames->n ? frames->n - 1 - level : 0;
}

/* The frame of a level that there was. */
static const struct frame *frame_at(const struct ptm_walk *walk, size_t level)
{
	return &walk->frames.items[below(&walk->frames, level)];
}

/* True when the frame of level `i` was as was presumed. */
static bool is_as_presumed(const struct ptm_walk *walk, const struct part *part, size_t i)
{
	const struct presumed *level = &part->levels[i];

	if (i >= walk->frames.n)
		return !(level->to->flags & PTM_ENTRY);
	return frame_at(walk, i)->function == level->function &&
	       (!level->to || frames_returns_to(frame_at(walk, i - 1), walk->program->blocks, level->to));
}

static bool calls(const struct ptm_walk *walk, size_t level, const struct ptm_block *to)
{
	for (; level < walk->frames.n; level++)
		if (frames_returns_to(frame_at(walk, level), walk->program->blocks, to))
			return true;
	return false;
}

/* True when nobody returned where that was presumed. `cost` is what the searches had cost (frames.h), each of which has to
 * have looked at all frames. */
static bool denied_rightly(const struct ptm_walk *walk, const struct part *part, uint64_t *cost)
{
	*cost = 0;
	for (size_t i = 0; i < part->n_denied; i++) {
		const struct denied *denied = &part->denied[i];
		const size_t looked = below(&walk->frames, denied->level) + denied->frames;
		const uint64_t more = looked > SEARCH_ALWAYS ? looked - SEARCH_ALWAYS : 0;

		if (*cost + more > walk->frames.credit + denied->credit || calls(walk, denied->level, denied->to))
			return false;
		*cost += more;
	}
	return true;
}

int ptm_walk_fits(const struct ptm_walk *walk, const struct ptm_walk *part)
{
	const struct frames *frames = &walk->frames;
	uint64_t cost;

	if (walk->next != part->part.first || frames->signal || frames->beyond || walk->sigreturn || part->frames.far ||
	    !frames->n || frames->n + part->frames.room > FRAMES_MAX)
		return 0;
	for (size_t i = 0; i < part->part.n; i++)
		if (!is_as_presumed(walk, &part->part, i))
			return 0;
	return denied_rightly(walk, &part->part, &cost);
}

/* Callers as a walk of the whole would have noted them: those below the presumed frame are added. */
static void complete(struct ptm_returns *callers, const struct frames *frames)
{
	const uint64_t level = callers->known >> PART_LEVEL_SHIFT;

	if (!level)
		return;
	callers->known &= (1 << PART_LEVEL_SHIFT) - 1;
	for (size_t at = below(frames, level - 1); at > 0 && callers->known < PTM_RETURNS; at--)
		callers->returns[callers->known++] = frames->items[at].ret;
}

int ptm_walk_callers(const struct ptm_walk *walk, const struct ptm_callers *others, struct ptm_callers *callers,
		     uint32_t *numbers)
{
	for (size_t i = 0; i < others->n; i++) {
		struct ptm_returns list = others->items[i];
		int error;

		complete(&list, &walk->frames);
		error = callers_number(callers, &list, &numbers[i]);
		if (error)
			return error;
	}
	return 0;
}

/* What a node of a part is here. They come in the order in which they were met: where there is no room for one, it folds as
 * it would have then. */
static int adopt(struct ptm_walk *walk, const struct ptm_node *node, const uint32_t *numbers, uint32_t *ret)
{
	uint32_t parent = PTM_NONE, block = node->block;

	if (node->parent != PTM_NONE) {
		parent = numbers[node->parent];
	} else if (node->block >= walk->frames.n) {
		block = PTM_NONE;
	} else {
		const size_t at = below(&walk->frames, node->block);

		parent = at ? walk->frames.items[at - 1].node : PTM_NONE;
		block = walk->frames.items[at].block;
	}
	return tree_adopt(walk->frames.tree, parent, node->function, block, ret);
}

/* `deep`: some of the part's stacks fold for being deep, which those that fold for being many do not. */
static int adopt_all(struct ptm_walk *walk, const struct ptm_tree *tree, bool deep, uint32_t *numbers)
{
	tree_expect(walk->frames.tree, tree->n);
	for (size_t i = 0; i < tree->n; i++) {
		if (i + TREE_SOON < tree->n) {
			const struct ptm_node *soon = &tree->nodes[i + TREE_SOON];

			tree_fetch(walk->frames.tree, numbers, i, soon->parent, soon->function, soon->block);
		}
		const int error = adopt(walk, &tree->nodes[i], numbers, &numbers[i]);

		if (error)
			return error;
		if (deep && tree_is_folded(walk->frames.tree, numbers[i]))
			return -ENOSPC;
	}
	return 0;
}

static void add_counts(struct ptm_walk *walk, const struct ptm_walk *part, const uint32_t *numbers)
{
	const struct ptm_tree *tree = part->frames.tree;

	for (size_t i = 0; i < tree->n_touched; i++) {
		const struct ptm_node *from = &tree->nodes[tree->touched[i]];
		struct ptm_node *node = tree_touch(walk->frames.tree, numbers[tree->touched[i]]);
		timeline_ns spent;

		memcpy(&spent, from->spent, sizeof(spent));
		tree_spend(node, spent);
		node->calls += from->calls;
		node->instructions += from->instructions;
		node->blocks += from->blocks;
		if (tree_is_folded(walk->frames.tree, numbers[tree->touched[i]])) {
			walk->frames.folds[TREE_WHOLE] -= from->calls;
			walk->frames.folds[TREE_MANY] += from->calls;
		}
	}
	for (size_t i = 0; i < sizeof(walk->frames.folds) / sizeof(*walk->frames.folds); i++)
		walk->frames.folds[i] += part->frames.folds[i];
}

/* The stack becomes the part's, upon the frames that it presumed. There is room. */
static void take_frames(struct frames *frames, const struct frames *from, const uint32_t *numbers)
{
	const size_t level = from->n ? from->items[0].block : PTM_NONE, first = below(frames, level);
	const struct frame root = level < frames->n ? frames->items[first] : (struct frame){ .block = PTM_NONE };

	for (size_t i = 0; i < from->n; i++) {
		struct frame *frame = &frames->items[first + i];

		*frame = from->items[i];
		frame->node = numbers[frame->node];
		if (frame->function == PTM_SIGNAL && frame->outer)
			frame->outer += (uint32_t)first;
	}
	if (from->n) {
		frames->items[first].ret = root.ret;
		frames->items[first].block = root.block;
	}
	frames->n = first + from->n;
	frames->signal = from->signal ? from->signal + (uint32_t)first : 0;
	if (frames->folded > first)
		frames->folded = 0;
	if (!frames->folded && from->folded)
		frames->folded = first + from->folded;
	for (size_t i = first; !frames->folded && i < frames->n; i++)
		if (tree_is_folded(frames->tree, frames->items[i].node))
			frames->folded = i + 1;
	frames->mark = from->mark;
}

int ptm_walk_join(struct ptm_walk *walk, const struct ptm_walk *part)
{
	const struct ptm_tree *tree = part->frames.tree;
	uint32_t *numbers = malloc((tree->n + 1) * sizeof(*numbers));
	uint64_t cost;
	int error = numbers ? frames_reserve(&walk->frames, part->frames.n) : -ENOMEM;

	if (!error)
		error = adopt_all(walk, tree, part->frames.folds[TREE_DEEP] > 0, numbers);
	if (!error) {
		denied_rightly(walk, &part->part, &cost);
		walk->frames.credit += part->frames.credit - CREDIT - cost;
		add_counts(walk, part, numbers);
		take_frames(&walk->frames, &part->frames, numbers);
		walk->next = part->next;
		walk->before = part->before;
		walk->sigreturn = part->sigreturn;
		walk->called = part->called;
	}
	free(numbers);
	return error;
}
