/* SPDX-License-Identifier: MIT */
/* A thread's flow as elements to compare. Rows that the main cursor is past are dropped when more are fed. */
#include "side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t key_of(uint32_t first, uint32_t last)
{
	return (uint64_t)first << 32 | last;
}

static uint64_t mix(uint64_t hash, uint64_t key)
{
	hash = (hash ^ key) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

/* A path can be taken at once when it has no system call, no code of libtthread's, and no cut block. */
static uint64_t hash_path(const struct side *side, size_t index)
{
	const struct path *path = &side->program->paths[index];
	uint64_t hash = path->length;

	if (!path->plain || side->program->briefs[index].syscalls)
		return 0;
	for (uint32_t i = 0; i < path->length; i++) {
		const int32_t number = side->program->values[path->first + i];

		if (side->program->blocks[number].cls == PTM_OTHER || side->places[number].room == PTM_LIBTTHREAD)
			return 0;
		hash = mix(hash, key_of(side->places[number].first, side->places[number].last));
	}
	return hash ? hash : 1;
}

int side_init(struct side *side, const struct ptm_program *program, const struct ptm_places *places,
	      struct ptm_tree *tree)
{
	int error;

	*side = (struct side){ .program = program, .places = places };
	side->hashes = calloc(program->n_paths ? program->n_paths : 1, sizeof(*side->hashes));
	if (!side->hashes)
		return -ENOMEM;
	for (size_t i = 0; i < program->n_paths; i++)
		side->hashes[i] = hash_path(side, i);
	error = ptm_walk_create(program, tree, NULL, 0, &side->main.walk);
	return error ? error : ptm_walk_create(program, tree, NULL, 0, &side->scout.walk);
}

void side_deinit(struct side *side)
{
	ptm_walk_destroy(side->main.walk);
	ptm_walk_destroy(side->scout.walk);
	free(side->hashes);
	free(side->seqs);
	free(side->paths);
	free(side->events);
	free(side->owners);
	*side = (struct side){ 0 };
}

void side_begin(struct side *side)
{
	ptm_walk_begin(side->main.walk);
	side->main = (struct cursor){ .walk = side->main.walk };
	side->n = side->n_events = 0;
	side->last = false;
	if (side->owners_room)
		memset(side->owners, 0, side->owners_room * sizeof(*side->owners));
}

static int grow(void **array, size_t room, size_t size)
{
	void *grown = realloc(*array, room * size);

	if (!grown)
		return -ENOMEM;
	*array = grown;
	return 0;
}

static int grow_rows(struct side *side, size_t wanted)
{
	size_t room = side->room ? side->room : 4096;
	int error;

	if (wanted <= side->room)
		return 0;
	while (room < wanted)
		room *= 2;
	error = grow((void **)&side->seqs, room, sizeof(*side->seqs));
	if (!error)
		error = grow((void **)&side->paths, room, sizeof(*side->paths));
	if (!error)
		side->room = room;
	return error;
}

/* Forget what the main cursor is past. */
static void compact(struct side *side)
{
	struct ptm_walk *walk = side->main.walk;
	const size_t row = side->main.row, event = walk->next_event;

	memmove(side->seqs, side->seqs + row, (side->n - row) * sizeof(*side->seqs));
	memmove(side->paths, side->paths + row, (side->n - row) * sizeof(*side->paths));
	side->n -= row;
	side->main.row = 0;
	if (event)
		memmove(side->events, side->events + event, (side->n_events - event) * sizeof(*side->events));
	side->n_events -= event;
	walk->next_event = 0;
}

int side_feed(struct side *side, const int64_t *seqs, const int32_t *paths, size_t n, const struct ptm_event *events,
	      size_t n_events, bool last)
{
	int error = 0;

	for (size_t i = 0; i < n; i++)
		if (paths[i] < 0 || (size_t)paths[i] >= side->program->n_paths)
			return -EINVAL;
	if (side->main.row)
		compact(side);
	error = grow_rows(side, side->n + n);
	if (error)
		return error;
	if (side->n_events + n_events > side->events_room) {
		const size_t room = 2 * (side->n_events + n_events);

		error = grow((void **)&side->events, room, sizeof(*side->events));
		if (error)
			return error;
		side->events_room = room;
	}
	if (n) {
		memcpy(side->seqs + side->n, seqs, n * sizeof(*seqs));
		memcpy(side->paths + side->n, paths, n * sizeof(*paths));
	}
	if (n_events)
		memcpy(side->events + side->n_events, events, n_events * sizeof(*events));
	side->n += n;
	side->n_events += n_events;
	side->last = last;
	side->main.walk->events = side->events;
	side->main.walk->n_events = side->n_events;
	return 0;
}

int side_scout(struct side *side)
{
	struct ptm_walk *walk = side->scout.walk;
	const struct ptm_walk *main = side->main.walk;
	struct visits visits = walk->visits;
	struct frame *items = walk->frames.items;
	size_t room = walk->frames.room;

	if (room < main->frames.n) {
		if (grow((void **)&walk->frames.items, main->frames.room, sizeof(*items)))
			return -ENOMEM;
		items = walk->frames.items;
		room = main->frames.room;
	}
	*walk = *main;
	walk->frames.items = items;
	walk->frames.room = room;
	walk->frames.calls = NULL;
	walk->frames.calls_room = walk->frames.n_calls = 0;
	walk->visits = visits;
	if (main->frames.n)
		memcpy(items, main->frames.items, main->frames.n * sizeof(*items));
	side->scout = side->main;
	side->scout.walk = walk;
	return 0;
}

/* --- whose work a frame is ---------------------------------------------------------------------------------------- */

static int grow_owners(struct side *side, size_t wanted)
{
	size_t room = side->owners_room ? side->owners_room : 256;
	int error;

	if (wanted <= side->owners_room)
		return 0;
	while (room < wanted)
		room *= 2;
	error = grow((void **)&side->owners, room, sizeof(*side->owners));
	if (error)
		return error;
	memset(side->owners + side->owners_room, 0, (room - side->owners_room) * sizeof(*side->owners));
	side->owners_room = room;
	return 0;
}

/* What is known of a frame's owner. Calls are numbered, and the scout meets those that the main cursor will meet. */
static enum owner known_owner(const struct side *side, const struct frames *frames, size_t index)
{
	const struct frame *frame = &frames->items[index];

	if (frame->function == PTM_SIGNAL)
		return OWNER_LIBTTHREAD;
	if (index >= side->owners_room || side->owners[index].call != frame->call)
		return OWNER_UNKNOWN;
	return side->owners[index].owner;
}

/* Whose work the top frame is: by the first block seen in it, and by whoever called it. */
static int owner(struct side *side, const struct frames *frames, uint32_t room)
{
	enum owner found = known_owner(side, frames, frames->n - 1), below = OWNER_UNKNOWN;
	int error;

	if (found != OWNER_UNKNOWN)
		return found;
	error = grow_owners(side, frames->n);
	if (error)
		return error;
	for (size_t i = frames->n - 1; i > 0 && below == OWNER_UNKNOWN; i--)
		below = known_owner(side, frames, i - 1);
	found = room == PTM_LIBTTHREAD || (room == PTM_SYSTEM && below == OWNER_LIBTTHREAD) ? OWNER_LIBTTHREAD
											     : OWNER_PROGRAM;
	side->owners[frames->n - 1] = (struct owned){ .call = frames_top(frames)->call, .owner = found };
	return found;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static bool gap_before(const struct ptm_walk *walk, int64_t x)
{
	for (size_t i = walk->next_event; i < walk->n_events && walk->events[i].seq <= x; i++)
		if (walk->events[i].kind == PTM_GAP)
			return true;
	return false;
}

/* Walk one block. 1: it is the program's; 0: it is not, or a part of one. */
static int take(struct side *side, struct cursor *cursor, int64_t seq, uint32_t number, struct element *ret)
{
	const struct ptm_block *block = &side->program->blocks[number];
	const struct ptm_places *places = &side->places[number];
	struct ptm_walk *walk = cursor->walk;
	uint32_t first = places->first;
	int error;

	if (walk->next_event < walk->n_events && gap_before(walk, seq))
		cursor->gap = true;
	error = walk_block(walk, seq, number);
	if (error)
		return error;
	walk->visits.n = 0;
	if (!walk->frames.n)
		return 0;
	error = owner(side, &walk->frames, places->room);
	if (error < 0)
		return error;
	if (error == OWNER_LIBTTHREAD)
		return 0;
	if (cursor->gap)
		cursor->resume = 0;
	if (cursor->resume && cursor->resume == block->addr) {
		first = cursor->first;
		cursor->resume = 0;
	}
	if (block->cls == PTM_OTHER) {
		cursor->resume = block->addr + block->size;
		cursor->first = first;
		return 0;
	}
	*ret = (struct element){ .key = key_of(first, places->last), .seq = seq, .depth = walk->frames.n,
				 .block = number, .node = frames_top(&walk->frames)->node, .gap = cursor->gap };
	cursor->gap = false;
	return 1;
}

int side_next(struct side *side, struct cursor *cursor, struct element *ret)
{
	struct ptm_walk *walk = cursor->walk;

	while (cursor->row < side->n) {
		const struct path *path = &side->program->paths[side->paths[cursor->row]];
		const int64_t seq = side->seqs[cursor->row];

		if (!cursor->at) {
			int error;

			if (walk->begun && seq > walk->next)
				cursor->gap = true;
			error = walk_reach(walk, seq);
			if (error)
				return error;
		}
		while (cursor->at < path->length) {
			const uint32_t at = cursor->at++;
			const int found = take(side, cursor, seq + at, (uint32_t)side->program->values[path->first + at],
					       ret);

			if (found)
				return found;
		}
		walk->next = seq + path->length;
		cursor->at = 0;
		cursor->row++;
	}
	return 0;
}

uint64_t side_whole_path(struct side *side)
{
	struct cursor *cursor = &side->main;
	struct ptm_walk *walk = cursor->walk;
	const struct path *path;

	/* a path whose last block was taken ends here */
	while (cursor->row < side->n && cursor->at &&
	       cursor->at == side->program->paths[side->paths[cursor->row]].length) {
		walk->next = side->seqs[cursor->row] + cursor->at;
		cursor->at = 0;
		cursor->row++;
	}
	if (cursor->row >= side->n || cursor->at || cursor->resume || cursor->gap)
		return 0;
	path = &side->program->paths[side->paths[cursor->row]];
	if (!walk->begun || side->seqs[cursor->row] != walk->next || !walk_stays(walk, path))
		return 0;
	/* the frame's code is the program's when that of the block before was */
	if (known_owner(side, &walk->frames, walk->frames.n - 1) != OWNER_PROGRAM)
		return 0;
	return side->hashes[side->paths[cursor->row]];
}

int64_t side_take_path(struct side *side, uint32_t *block)
{
	struct cursor *cursor = &side->main;
	const struct path *path = &side->program->paths[side->paths[cursor->row]];

	walk_over(cursor->walk, path);
	cursor->walk->next += path->length;
	cursor->row++;
	*block = (uint32_t)side->program->values[path->first + path->length - 1];
	return cursor->walk->next - 1;
}
