/* SPDX-License-Identifier: MIT */
/*
 * The walk's inside, for what walks block by block and looks at the stack in between. One walk belongs to one caller at
 * a time; the program and the tree outlive it; freed by ptm_walk_destroy.
 */
#ifndef PTWEAVE_MERGE_WALK_H
#define PTWEAVE_MERGE_WALK_H

#include "frames.h"
#include "memo.h"
#include "merge_api.h"
#include "part.h"
#include "program.h"
#include "timeline.h"
#include "tree.h"
#include "visits.h"

/* How things stood when a path that is remembered began. */
struct recorded {
	struct memo_key key;
	size_t marks;
	size_t visits;
	int64_t calls;
	uint64_t credit;
};

struct ptm_walk {
	const struct ptm_program *program;
	struct frames frames;
	struct timeline timeline;

	bool begun;                     /* a block was walked */
	int64_t next;                   /* ordinal of the block that follows */
	const struct ptm_block *before; /* block that ran last; NULL after a gap, or when its step is done already */
	bool sigreturn;                 /* it was a system call rt_sigreturn */
	bool called;                    /* the next bottom frame counts as a call */

	const struct ptm_event *events;
	size_t n_events;
	size_t next_event;

	struct ptm_callers *callers;    /* of marks; NULL: none are noted */
	struct ptm_mark *marks;
	size_t n_marks;
	size_t marks_room;
	struct visits visits;

	struct memo memo;
	struct recorded recorded;
	struct part part;
};

/* Get to a path that begins at `seq`: what was not recorded before it is a gap. -EILSEQ: ordinals that go back. */
int walk_reach(struct ptm_walk *walk, int64_t seq);
/* When block x begins: moments up to it are passed. */
int64_t walk_now(struct ptm_walk *walk, int64_t x);
/* The next moment is passed: what ran up to it, and the time that passed at it, is `node`'s (NULL: nobody's). */
void walk_pass(struct ptm_walk *walk, struct ptm_node *node);
/* When what ran before block x ended: moments before it are passed. */
int64_t walk_arrival(struct ptm_walk *walk, int64_t x);
/* Execute block `number` at ordinal `x`, with the events before it. */
int walk_block(struct ptm_walk *walk, int64_t x, uint32_t number);
/* A copy of a mark, behind those that are there. -ENOMEM. */
int walk_put_mark(struct ptm_walk *walk, const struct ptm_mark *mark);
/* True when the whole path, reached, runs in the top frame as it is. */
bool walk_stays(const struct ptm_walk *walk, const struct path *path);
/* Execute a path that stays, at once. `next` is the caller's to move on. */
void walk_over(struct ptm_walk *walk, const struct path *path);

/* Of paths to come, what will be looked at soon is fetched: they come in no order. */
void walk_fetch(const struct ptm_walk *walk, const int32_t *paths, size_t left);

enum { WALK_OUTPUT = 1 << 17 }; /* rows of output after which feeding pauses */

static inline bool walk_has_output(const struct ptm_walk *walk)
{
	return walk->frames.n_calls >= WALK_OUTPUT || walk->n_marks >= WALK_OUTPUT || walk->visits.n >= WALK_OUTPUT;
}

#endif
