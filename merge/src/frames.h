/* SPDX-License-Identifier: MIT */
/*
 * The shadow call stack of the thread being walked, and what is counted for its top frame.
 *
 * Every change of the stack happens at a boundary: right before block `x`, at time `t`. Until then, what ran is
 * collected here and given to the top frame's node when it stops being the top.
 */
#ifndef PTWEAVE_MERGE_FRAMES_H
#define PTWEAVE_MERGE_FRAMES_H

#include <stdbool.h>

#include "merge_api.h"
#include "tape.h"
#include "timeline.h"
#include "tree.h"

/* Frames kept; what nests deeper is counted in its FRAMES_MAX-th frame. No default thread stack holds as many. */
enum { FRAMES_MAX = 1 << 20 };

enum { SEARCH_ALWAYS = 64 }; /* frames that any search may look at */

struct frame {
	uint64_t ret;        /* where it returns to (packed; of a signal: what was interrupted); 0 unknown */
	uint32_t node;
	uint32_t function;
	uint32_t block;      /* block that called it; PTM_NONE; of a bottom frame that is presumed: its level */
	uint32_t outer;      /* of a signal's frame: `signal` when it was entered */
	int64_t call;
	int64_t seq;
	int64_t t;
};

struct frames {
	struct ptm_tree *tree;
	const struct timeline *line;
	struct frame *items;
	size_t n;
	size_t room;
	uint64_t beyond;     /* frames not kept above the FRAMES_MAX-th */
	uint32_t signal;     /* index + 1 of the innermost signal's frame; 0 none */
	uint64_t credit;     /* frames a failing search may still look at */
	size_t folded;       /* index + 1 of the lowest frame whose node is not its whole stack; 0 none */
	bool far;            /* a search looked at more frames than any may */

	int64_t instructions; /* collected for the top frame */
	int64_t blocks;
	int64_t mark;        /* ordinal of the first block whose time is not yet a node's: no moment lies in between */

	bool want_calls;
	int64_t next_call;
	struct ptm_call *calls;
	size_t n_calls;
	size_t calls_room;
	int64_t folds[3];    /* calls by enum tree_fold */
	struct tape tape;
};

void frames_init(struct frames *frames, struct ptm_tree *tree, const struct timeline *line, bool want_calls);
void frames_deinit(struct frames *frames);
/* Empty the stack without counting: another thread. */
void frames_begin(struct frames *frames);
/* The time from `mark` to block `x`, in which no moment lies, is `node`'s (NULL: nobody's). */
static inline void frames_spend(struct frames *frames, struct ptm_node *node, int64_t x)
{
	if (x <= frames->mark)
		return;
	if (node)
		tree_spend(node, frames->line->rate * (uint64_t)(x - frames->mark));
	frames->mark = x;
}

/* It is the top frame's, if there is one, and so is all that was collected. */
void frames_settle(struct frames *frames, int64_t x);

static inline struct frame *frames_top(const struct frames *frames)
{
	return &frames->items[frames->n - 1];
}

/* A new top frame; `called` says whether it counts as a call. All return 0 or -ENOMEM. */
int frames_enter(struct frames *frames, int64_t x, int64_t t, uint64_t ret, uint32_t function, uint32_t block,
		 bool called);
/* Drop frames until `n` are left. */
int frames_leave(struct frames *frames, int64_t x, int64_t t, size_t n);
/* The top frame becomes one of another function (a tail jump): same caller, same return address. */
int frames_replace(struct frames *frames, int64_t x, int64_t t, uint32_t function, bool called);

/* The stack, which is empty, gets a frame that is there already: `level` frames below the one that was the top when a part
 * of a thread began (part.h), of which only its function is known. -ENOMEM. */
int frames_presume(struct frames *frames, int64_t x, uint32_t function, uint32_t level);

/* True when the bottom frame is such a one. */
static inline bool frames_presumed(const struct frames *frames)
{
	return frames->n && frames->items[0].block != PTM_NONE;
}

/* The stack becomes that of `node`, nothing of which is folded or a signal's; what was collected is given away already.
 * `blocks` are the program's. -ENOMEM. */
int frames_become(struct frames *frames, uint32_t node, const struct ptm_block *blocks);

/* Room for so many frames more. -ENOMEM. */
int frames_reserve(struct frames *frames, size_t more);
/* True when a frame returns to `to`. */
bool frames_returns_to(const struct frame *frame, const struct ptm_block *blocks, const struct ptm_block *to);

/* Number of frames left when the innermost frame of `function` below the top becomes the top; 0 none found. */
size_t frames_find_function(struct frames *frames, uint32_t function);
/* Number of frames left when the innermost frame that returns to `to` returns; SIZE_MAX none found. */
size_t frames_find_return(struct frames *frames, const struct ptm_block *blocks, const struct ptm_block *to);
/* The same among those frames that any search may look at. */
size_t frames_find_near_return(const struct frames *frames, const struct ptm_block *blocks, const struct ptm_block *to);

#endif
