/* SPDX-License-Identifier: MIT */
/*
 * One side of a comparison: a thread's flow as elements, a block each that belongs to the program, with the depth of
 * the stack. What libtthread does in the program is passed over; blocks that an event cut are put together again.
 * Not thread-safe; owns copies of the flow; freed by side_deinit.
 */
#ifndef PTWEAVE_MERGE_SIDE_H
#define PTWEAVE_MERGE_SIDE_H

#include "compare_api.h"
#include "walk.h"

/* Rows of flow that a scout may look ahead. */
enum { SIDE_AHEAD = 1 << 20 };

struct element {
	uint64_t key;      /* where it begins and ends, the same number in both runs */
	int64_t seq;
	size_t depth;      /* frames on the stack */
	uint32_t block;
	uint32_t node;     /* of the stack */
	bool gap;          /* what was before it is not recorded */
};

/* Where execution stands: the walk's state, and the row of flow with the block in it. */
struct cursor {
	struct ptm_walk *walk;
	size_t row;
	uint32_t at;
	uint64_t resume;   /* address at which a cut block goes on; 0 none */
	uint32_t first;    /* place it began at */
	bool gap;          /* a hole was met since the last element */
};

enum owner { OWNER_UNKNOWN, OWNER_PROGRAM, OWNER_LIBTTHREAD };

/* Whose work a frame is; `call` says which frame that was. */
struct owned {
	int64_t call;
	enum owner owner;
};

struct side {
	const struct ptm_program *program;
	const struct ptm_places *places;
	uint64_t *hashes;  /* of each path's elements; 0: it must be looked at block by block */

	int64_t *seqs;
	int32_t *paths;
	size_t n;
	size_t room;
	struct ptm_event *events;
	size_t n_events;
	size_t events_room;
	bool last;

	struct cursor main;
	struct cursor scout;

	struct owned *owners; /* by place on the stack */
	size_t owners_room;
};

int side_init(struct side *side, const struct ptm_program *program, const struct ptm_places *places,
	      struct ptm_tree *tree);
void side_deinit(struct side *side);
void side_begin(struct side *side);
int side_feed(struct side *side, const int64_t *seqs, const int32_t *paths, size_t n, const struct ptm_event *events,
	      size_t n_events, bool last);

static inline size_t side_ahead(const struct side *side)
{
	return side->n - side->main.row;
}

/* The next element. 1: there is one; 0: rows are used up; or an error. */
int side_next(struct side *side, struct cursor *cursor, struct element *ret);
/* Put the scout where the main cursor is. */
int side_scout(struct side *side);
/* The path both sides may take at once: its hash, 0 when it must be looked at. */
uint64_t side_whole_path(struct side *side);
/* Take it; returns its last block's ordinal, block in `*block`. */
int64_t side_take_path(struct side *side, uint32_t *block);

#endif
