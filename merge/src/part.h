/* SPDX-License-Identifier: MIT */
/*
 * A part of a thread that is walked without what ran before it: on a stack of which it presumes what it sees.
 *
 * Such a walk begins with one frame, that of the function of the block before it; its level is 0. Where that one returns,
 * the frame below it, of level 1, is taken to be the one that execution goes on in, and so on. Presumed frames are roots of
 * the tree, in which their level stands for the block that called them. A return of a frame above them that none above them
 * called is taken to be none (a signal's handler returns to code that nobody called). Whatever depends on more of the stack
 * ends the part (-ECANCELED).
 *
 * Who has walked up to where a part begins knows the stack: if it is as was presumed, the part did what a walk of the whole
 * would have done.
 */
#ifndef PTWEAVE_MERGE_PART_H
#define PTWEAVE_MERGE_PART_H

#include "merge_api.h"

struct presumed {
	uint32_t function;
	const struct ptm_block *to;     /* where the frame above it returned to; NULL of level 0 */
};

/* A return that is presumed to be none to a frame of this level or below. */
struct denied {
	const struct ptm_block *to;
	uint32_t level;
	uint32_t frames;                /* there were, the presumed one included */
	uint64_t credit;                /* earned in the part (frames.h) */
};

struct part {
	struct denied *denied;
	size_t n_denied;
	size_t denied_room;
	struct presumed *levels;
	size_t n;                       /* 0: the walk began with its thread */
	size_t room;
	int64_t first;                  /* ordinal it began at */
};

enum { PART_LEVEL_SHIFT = 8 };

/* A mark whose callers are known as far as the presumed frame of this level. */
static inline void part_note_level(struct ptm_returns *callers, uint32_t level)
{
	callers->known |= (level + 1ull) << PART_LEVEL_SHIFT;
}

void part_deinit(struct part *part);
/* Execution returns to no frame above the presumed one: it is the top frame, and returned itself, or nobody returned. */
int part_return(struct ptm_walk *walk, int64_t x, const struct ptm_block *to);

#endif
