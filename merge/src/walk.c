/* SPDX-License-Identifier: MIT */
/*
 * One thread's flow, walked block by block only where its stack may change.
 *
 * Calls push, returns pop to the frame they return to (also several at once: longjmp, unwinding) as jumps behind a call
 * in code without functions do, a jump to another function replaces the top frame (a tail jump; PLT stubs `f@plt` are
 * functions that do that), an interruption pushes [signal] and its handler until execution is back. After a gap the
 * stack starts anew at the block that ran.
 */
#include <errno.h>
#include <stdlib.h>

#include "callers.h"
#include "replay.h"
#include "walk.h"

enum {
	AHEAD = 12,             /* rows of flow, at which what is known of a path is fetched */
	NEAR = 6,               /* and what is remembered of it */
	FIRST_MARKS = 1024,
};

int ptm_walk_create(const struct ptm_program *program, struct ptm_tree *tree, struct ptm_callers *callers, int want_calls,
		    struct ptm_walk **ret)
{
	struct ptm_walk *walk;

	if (!program->paths)
		return -EINVAL;
	walk = calloc(1, sizeof(*walk));
	if (!walk)
		return -ENOMEM;
	walk->program = program;
	walk->callers = callers;
	frames_init(&walk->frames, tree, &walk->timeline, want_calls != 0);
	memo_init(&walk->memo, program->n_paths);
	ptm_walk_begin(walk);
	*ret = walk;
	return 0;
}

void ptm_walk_destroy(struct ptm_walk *walk)
{
	if (!walk)
		return;
	frames_deinit(&walk->frames);
	free(walk->marks);
	visits_deinit(&walk->visits);
	memo_deinit(&walk->memo);
	part_deinit(&walk->part);
	free(walk);
}

void ptm_walk_begin(struct ptm_walk *walk)
{
	tree_begin(walk->frames.tree);
	frames_begin(&walk->frames);
	memo_drop_counts(&walk->memo);
	timeline_init(&walk->timeline);
	walk->begun = false;
	walk->next = 0;
	walk->before = NULL;
	walk->sigreturn = false;
	walk->called = true;
	walk->next_event = walk->n_events = 0;
	part_deinit(&walk->part);
}

const struct ptm_call *ptm_walk_calls(struct ptm_walk *walk, size_t *ret)
{
	*ret = walk->frames.n_calls;
	walk->frames.n_calls = 0;
	return walk->frames.calls;
}

const struct ptm_mark *ptm_walk_marks(struct ptm_walk *walk, size_t *ret)
{
	*ret = walk->n_marks;
	walk->n_marks = 0;
	return walk->marks;
}

const struct ptm_visit *ptm_walk_visits(struct ptm_walk *walk, size_t *ret)
{
	*ret = walk->visits.n;
	walk->visits.n = 0;
	return walk->visits.items;
}

void ptm_walk_folds(const struct ptm_walk *walk, int64_t *whole, int64_t *deep, int64_t *many)
{
	*whole = walk->frames.folds[TREE_WHOLE];
	*deep = walk->frames.folds[TREE_DEEP];
	*many = walk->frames.folds[TREE_MANY];
}

/* --- steps from one block to the next ------------------------------------------------------------------------- */

void walk_pass(struct ptm_walk *walk, struct ptm_node *node)
{
	struct timeline *line = &walk->timeline;
	const int64_t x = line->seqs[line->next], passed = line->times[line->next] - line->t0;

	frames_spend(&walk->frames, node, x);
	if (node && line->begun && line->seq0 == x && passed > 0)
		tree_spend(node, (timeline_ns)TIMELINE_NS * (uint64_t)passed);
	else if (node)
		tree_spend(node, line->rest);
	timeline_pass(line);
}

static void pass_moment(struct ptm_walk *walk)
{
	struct frames *frames = &walk->frames;

	walk_pass(walk, frames->n ? tree_touch(frames->tree, frames_top(frames)->node) : NULL);
}

int64_t walk_now(struct ptm_walk *walk, int64_t x)
{
	while (!timeline_is_clear(&walk->timeline, x))
		pass_moment(walk);
	return timeline_between(&walk->timeline, x);
}

int64_t walk_arrival(struct ptm_walk *walk, int64_t x)
{
	while (timeline_is_behind(&walk->timeline, x))
		pass_moment(walk);
	return timeline_arrival(&walk->timeline, x);
}

/* The bottom frame: nothing is known below it. */
static int enter_bottom(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	const bool called = walk->called;

	walk->called = false;
	return frames_enter(&walk->frames, x, walk_now(walk, x), 0, to->function, PTM_NONE, called);
}

/* Execution is at `to` without a call or return: in the same function, or in another by a tail jump. */
static int go_on(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;

	if (!frames->n)
		return enter_bottom(walk, x, to);
	if (frames_top(frames)->function == to->function || frames->beyond)
		return 0;
	if (frames_top(frames)->function == PTM_SIGNAL)
		return frames_enter(frames, x, walk_now(walk, x), 0, to->function, PTM_NONE, false);
	return frames_replace(frames, x, walk_now(walk, x), to->function, to->flags & PTM_ENTRY);
}

/* Execution went into the middle of a function by other means than a call's return: longjmp, unwinding, a changed
 * context. If a frame of it is below, that one goes on. */
static int unwind(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;
	size_t left = 0;

	if (frames->n && to->function >= PTM_FIRST_FUNCTION && frames_top(frames)->function != to->function &&
	    !(to->flags & PTM_ENTRY)) {
		left = frames_find_function(frames, to->function);
		if (!left && frames_presumed(frames))
			return -ECANCELED;
	}
	if (left) {
		const int error = frames_leave(frames, x, walk_now(walk, x), left);

		if (error)
			return error;
	}
	return go_on(walk, x, to);
}

static int do_return(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;
	size_t left;
	int error;

	if (frames->beyond) {
		frames->beyond--;
		return 0;
	}
	left = frames_find_return(frames, walk->program->blocks, to);
	if (left == SIZE_MAX) {
		error = frames_presumed(frames) ? part_return(walk, x, to) : 0;
		return error ? error : unwind(walk, x, to);
	}
	error = frames_leave(frames, x, walk_now(walk, x), left);
	return error ? error : go_on(walk, x, to);
}

/* What is compiled while a program runs may take its return address off the stack and jump there (the interpreter of
 * HotSpot does); where functions are known, it is by them that a jump back is known. */
static int do_indirect_jump(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;
	size_t left = SIZE_MAX;

	if (to->flags & PTM_RESUMED && !frames->beyond)
		left = frames_find_near_return(frames, walk->program->blocks, to);
	if (left == SIZE_MAX)
		return to->flags & PTM_RESUMED && frames_presumed(frames) ? -ECANCELED : unwind(walk, x, to);
	const int error = frames_leave(frames, x, walk_now(walk, x), left);

	return error ? error : go_on(walk, x, to);
}

static int do_call(struct ptm_walk *walk, int64_t x, const struct ptm_block *from, const struct ptm_block *to)
{
	const uint32_t block = (uint32_t)(from - walk->program->blocks);

	return frames_enter(&walk->frames, x, walk_now(walk, x), from->addr + from->size, to->function, block, true);
}

/* A handler begins: [signal] over what was interrupted (`resume`), the handler over that. */
static int enter_signal(struct ptm_walk *walk, int64_t x, uint64_t resume, const struct ptm_block *handler)
{
	struct frames *frames = &walk->frames;
	const int64_t t = walk_now(walk, x);
	const int error = frames_enter(frames, x, t, resume, PTM_SIGNAL, PTM_NONE, true);

	return error ? error : frames_enter(frames, x, t, 0, handler->function, PTM_NONE, true);
}

/* The innermost handler is done. */
static int leave_signal(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	struct frames *frames = &walk->frames;
	const uint32_t left = frames->signal - 1;
	const bool resumed = frames->items[left].ret == to->addr;
	const int error = frames_leave(frames, x, walk_now(walk, x), left);

	if (error)
		return error;
	return resumed ? go_on(walk, x, to) : unwind(walk, x, to);
}

static bool resumes_signal(const struct ptm_walk *walk, const struct ptm_block *to)
{
	const struct frames *frames = &walk->frames;

	return frames->signal && frames->items[frames->signal - 1].ret == to->addr;
}

/* After a system call execution goes on behind it, unless the kernel put it elsewhere. */
static int do_syscall(struct ptm_walk *walk, int64_t x, const struct ptm_block *from, const struct ptm_block *to)
{
	if (walk->sigreturn)
		return walk->frames.signal ? leave_signal(walk, x, to) : unwind(walk, x, to);
	if (program_falls_through(from, to) || to->addr == from->addr + from->last)
		return go_on(walk, x, to);
	if (resumes_signal(walk, to))
		return leave_signal(walk, x, to);
	if (to->flags & PTM_START) {
		const int error = frames_leave(&walk->frames, x, walk_now(walk, x), 0);

		walk->called = true;
		return error ? error : enter_bottom(walk, x, to);
	}
	return enter_signal(walk, x, from->addr + from->size, to);
}

static int step(struct ptm_walk *walk, int64_t x, const struct ptm_block *to)
{
	const struct ptm_block *from = walk->before;

	if (!from || !walk->frames.n)
		return go_on(walk, x, to);
	switch (from->cls) {
	case PTM_CALL:
	case PTM_IND_CALL:
		return program_falls_through(from, to) ? go_on(walk, x, to) : do_call(walk, x, from, to);
	case PTM_RETURN:
		return do_return(walk, x, to);
	case PTM_SYSCALL:
		return do_syscall(walk, x, from, to);
	case PTM_IND_JUMP:
		return do_indirect_jump(walk, x, to);
	default:
		return go_on(walk, x, to);
	}
}

/* --- events between blocks --------------------------------------------------------------------------------------- */

/* Everything open ends; time that passed in the hole is nobody's. */
static int do_gap(struct ptm_walk *walk, int64_t x)
{
	const int error = frames_leave(&walk->frames, x, walk_arrival(walk, x), 0);

	walk_now(walk, x);
	walk->before = NULL;
	walk->called = false;
	return error;
}

static int do_exec(struct ptm_walk *walk, int64_t x)
{
	const int error = frames_leave(&walk->frames, x, walk_now(walk, x), 0);

	walk->before = NULL;
	walk->called = true;
	return error;
}

static const struct ptm_block *block_or(const struct ptm_walk *walk, int32_t number, const struct ptm_block *other)
{
	if (number < 0 || (size_t)number >= walk->program->n_blocks)
		return other;
	return &walk->program->blocks[number];
}

static int do_async(struct ptm_walk *walk, int64_t x, const struct ptm_event *event, const struct ptm_block *next)
{
	const struct ptm_block *from = block_or(walk, event->from_block, NULL);
	const struct ptm_block *to = block_or(walk, event->to_block, next);
	int error = 0;

	if (from && walk->before)
		error = step(walk, x, from);
	walk->before = NULL;
	if (error)
		return error;
	if (resumes_signal(walk, to))
		return leave_signal(walk, x, to);
	return enter_signal(walk, x, event->from, to);
}

/* Handle the events before block `x`, which is `next`. */
static int do_events(struct ptm_walk *walk, int64_t x, const struct ptm_block *next)
{
	int error = 0;

	while (!error && walk->next_event < walk->n_events && walk->events[walk->next_event].seq <= x) {
		const struct ptm_event *event = &walk->events[walk->next_event++];

		switch (event->kind) {
		case PTM_GAP:
			error = do_gap(walk, x);
			break;
		case PTM_EXEC:
			error = do_exec(walk, x);
			break;
		case PTM_SIGRETURN:
			walk->sigreturn = true;
			break;
		case PTM_MOVED:
			walk->before = NULL;
			break;
		case PTM_ASYNC:
			error = do_async(walk, x, event, next);
			break;
		default:
			error = -EINVAL;
		}
	}
	return error;
}

/* --- the walk ---------------------------------------------------------------------------------------------------- */

int walk_put_mark(struct ptm_walk *walk, const struct ptm_mark *mark)
{
	if (walk->n_marks == walk->marks_room) {
		const size_t room = walk->marks_room ? 2 * walk->marks_room : FIRST_MARKS;
		struct ptm_mark *marks = realloc(walk->marks, room * sizeof(*marks));

		if (!marks)
			return -ENOMEM;
		walk->marks = marks;
		walk->marks_room = room;
	}
	walk->marks[walk->n_marks++] = *mark;
	return 0;
}

static int put_mark(struct ptm_walk *walk, int64_t x, uint32_t block)
{
	const struct frames *frames = &walk->frames;
	struct ptm_mark mark = { .seq = x, .block = (int32_t)block };
	struct ptm_returns callers = { .known = 0 };
	int error;

	if (!walk->callers)
		return 0;
	for (size_t i = 0; !frames->beyond && i + 1 < frames->n && i < PTM_RETURNS; i++) {
		callers.returns[i] = frames->items[frames->n - 1 - i].ret;
		callers.known = i + 1;
	}
	if (frames_presumed(frames) && callers.known < PTM_RETURNS)
		part_note_level(&callers, frames->items[0].block);
	error = callers_number(walk->callers, &callers, &mark.callers);
	return error ? error : walk_put_mark(walk, &mark);
}

static bool event_before(const struct ptm_walk *walk, int64_t x)
{
	return walk->next_event < walk->n_events && walk->events[walk->next_event].seq < x;
}

int walk_block(struct ptm_walk *walk, int64_t x, uint32_t number)
{
	const struct ptm_block *block = &walk->program->blocks[number];
	int error = 0;

	if (event_before(walk, x + 1))
		error = do_events(walk, x, block);
	if (!error)
		error = step(walk, x, block);
	if (!error && block->flags & PTM_MARKER)
		error = put_mark(walk, x, number);
	if (!error && block->flags & PTM_ACCESS)
		error = visits_put(&walk->visits, x, number, PTM_VISIT_ACCESS);
	if (!error && block->flags & PTM_OWN)
		error = visits_put(&walk->visits, x, number, PTM_VISIT_OWN);
	if (!error && walk->sigreturn)
		error = visits_put(&walk->visits, x, number, PTM_VISIT_RESUMED);
	if (error)
		return error;
	walk->sigreturn = false;
	walk->before = block;
	walk->frames.blocks++;
	walk->frames.instructions += block->instructions;
	return 0;
}

/* After block `i` of a path, at ordinal `x`: go over those behind it that run in the top frame as it is. Returns how
 * many. */
static uint32_t skip_plain(struct ptm_walk *walk, const struct path *path, uint32_t i, int64_t x)
{
	const struct ptm_program *program = walk->program;
	const struct place *place = &program->places[path->first + i];

	if (!place->plain || !walk->frames.n || frames_top(&walk->frames)->function != walk->before->function ||
	    event_before(walk, x + place->plain + 1))
		return 0;
	walk->frames.blocks += place->plain;
	walk->frames.instructions += place->instructions;
	walk->before = &program->blocks[program->values[path->first + i + place->plain]];
	return place->plain;
}

static int walk_blocks(struct ptm_walk *walk, const struct path *path, int64_t seq)
{
	const struct ptm_program *program = walk->program;

	for (uint32_t i = 0; i < path->length; i++) {
		const int error = walk_block(walk, seq + i, (uint32_t)program->values[path->first + i]);

		if (error)
			return error;
		i += skip_plain(walk, path, i, seq + i);
	}
	return 0;
}

bool walk_stays(const struct ptm_walk *walk, const struct path *path)
{
	if (!path->plain || !walk->before || !walk->frames.n || event_before(walk, walk->next + path->length))
		return false;
	return frames_top(&walk->frames)->function == path->function && program_plain_begin(walk->before, path);
}

void walk_over(struct ptm_walk *walk, const struct path *path)
{
	walk->frames.blocks += path->length;
	walk->frames.instructions += path->instructions;
	walk->before = &walk->program->blocks[path->last];
}

int walk_reach(struct ptm_walk *walk, int64_t seq)
{
	if (seq < walk->next || seq > INT64_MAX / 2)
		return -EILSEQ;
	if (seq > walk->next && walk->begun) {
		const int error = do_gap(walk, seq);

		if (error)
			return error;
	}
	walk->begun = true;
	walk->next = seq;
	return 0;
}

/* Execute a path that is not known: at once where it stays in its frame, else block by block. */
static int walk_path(struct ptm_walk *walk, uint32_t number, int64_t seq)
{
	const struct path *path = &walk->program->paths[number];
	const bool stays = walk_stays(walk, path);
	int error = 0, wanted = 0;

	if ((!stays || memo_has_plenty(&walk->memo)) && path->length && !event_before(walk, seq + path->length))
		wanted = replay_wants(walk, number);
	if (wanted < 0)
		return wanted;
	if (wanted)
		error = replay_begin(walk, number);
	if (!error && stays)
		walk_over(walk, path);
	else if (!error)
		error = walk_blocks(walk, path, seq);
	if (!error && wanted)
		error = replay_store(walk);
	walk->next = seq + path->length;
	return error;
}

void walk_fetch(const struct ptm_walk *walk, const int32_t *paths, size_t left)
{
	const struct ptm_program *program = walk->program;

	if (left > AHEAD && walk->memo.likely && (uint32_t)paths[AHEAD] < program->n_paths)
		__builtin_prefetch(&walk->memo.likely[paths[AHEAD]]);
	if (left > NEAR && (uint32_t)paths[NEAR] < program->n_paths && !memo_fetch(&walk->memo, (uint32_t)paths[NEAR]))
		__builtin_prefetch(&program->paths[paths[NEAR]]);
}

/* While a path is walked, the blocks of the next one, which may have to be walked, too, are fetched. */
static void fetch_blocks(const struct ptm_program *program, const int32_t *paths, size_t left)
{
	if (left < 2 || (uint32_t)paths[1] >= program->n_paths)
		return;
	const int64_t first = program->paths[paths[1]].first;

	__builtin_prefetch(&program->places[first]);
	__builtin_prefetch(&program->values[first]);
}

/* Execute at least one path. Without `seqs` they follow each other from where the walk is. Returns how many. */
static int64_t walk_some(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n)
{
	int64_t done;
	int error;

	if (paths[0] < 0 || (size_t)paths[0] >= walk->program->n_paths)
		return -EINVAL;
	error = walk_reach(walk, seqs ? seqs[0] : walk->next);
	if (error)
		return error;
	done = replay_paths(walk, seqs, paths, n);
	if (done)
		return done;
	walk_fetch(walk, paths, n);
	fetch_blocks(walk->program, paths, n);
	error = walk_path(walk, (uint32_t)paths[0], walk->next);
	return error ? error : 1;
}

static void supply(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors,
		   const struct ptm_event *events, size_t n_events)
{
	timeline_supply(&walk->timeline, anchor_seqs, anchor_times, n_anchors);
	walk->events = events;
	walk->n_events = n_events;
	walk->next_event = 0;
}

static int64_t walk_all(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n, size_t *anchors_used,
			size_t *events_used)
{
	size_t done = 0;

	while (done < n && !walk_has_output(walk)) {
		const int64_t some = walk_some(walk, seqs ? seqs + done : NULL, paths + done, n - done);

		if (some < 0)
			return some;
		if (walk->part.n && walk->frames.folds[TREE_MANY])
			return -ECANCELED;
		done += (size_t)some;
	}
	*anchors_used = walk->timeline.next;
	*events_used = walk->next_event;
	return (int64_t)done;
}

int64_t ptm_walk_feed(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n,
		      const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors,
		      const struct ptm_event *events, size_t n_events, size_t *anchors_used, size_t *events_used)
{
	supply(walk, anchor_seqs, anchor_times, n_anchors, events, n_events);
	return walk_all(walk, seqs, paths, n, anchors_used, events_used);
}

int64_t ptm_walk_follow(struct ptm_walk *walk, int64_t first, const int32_t *paths, size_t n,
			const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors,
			const struct ptm_event *events, size_t n_events, size_t *anchors_used, size_t *events_used)
{
	int error;

	supply(walk, anchor_seqs, anchor_times, n_anchors, events, n_events);
	error = walk_reach(walk, first);
	return error ? error : walk_all(walk, NULL, paths, n, anchors_used, events_used);
}

int64_t ptm_walk_next(const struct ptm_walk *walk)
{
	return walk->next;
}

int ptm_walk_end(struct ptm_walk *walk, const int64_t *anchor_seqs, const int64_t *anchor_times, size_t n_anchors)
{
	int error;

	timeline_supply(&walk->timeline, anchor_seqs, anchor_times, n_anchors);
	error = frames_leave(&walk->frames, walk->next, walk_now(walk, walk->next), 0);
	replay_settle(walk);
	return error;
}
