/* SPDX-License-Identifier: MIT */
/*
 * What a walk does to the call stack while one path is executed, written down so that it can be done again.
 *
 * Off unless somebody records. What depends on more than the stack the path began with makes a tape `failed`.
 */
#ifndef PTWEAVE_MERGE_TAPE_H
#define PTWEAVE_MERGE_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAPE_STEPS = 1 << 12 }; /* what takes more is not worth it; memo.h counts them in 16 bits */

/* The top frame's node gets what ran in it, and the time, up to `offset`: all since the step before. Half a million paths
 * have a few each: they are kept small. */
struct tape_step {
	uint32_t node;          /* | TAPE_CALLED: the step before ended with a call of it */
	uint16_t offset;        /* blocks behind the path's first one */
	uint16_t instructions;
};

#define TAPE_CALLED (UINT32_C(1) << 31)

static inline uint32_t tape_node(const struct tape_step *step)
{
	return step->node & ~TAPE_CALLED;
}

struct tape {
	bool on;
	bool failed;
	int64_t seq;            /* where the path begins */
	size_t low;             /* frames that were there at the beginning and all the time */
	size_t n;
	uint32_t called;        /* node that was called and is to be settled next; PTM_NONE */
	struct tape_step *steps;
};

/* Begin, with `frames` on the stack, the top one of which was given all that ran before. -ENOMEM. */
int tape_begin(struct tape *tape, int64_t seq, size_t frames);
void tape_deinit(struct tape *tape);

/* Frames were left: `frames` are there now. */
static inline void tape_low(struct tape *tape, size_t frames)
{
	if (tape->low > frames)
		tape->low = frames;
}

void tape_settle(struct tape *tape, int64_t x, uint32_t node, int64_t instructions);
void tape_call(struct tape *tape, uint32_t node);

#endif
