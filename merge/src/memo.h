/* SPDX-License-Identifier: MIT */
/*
 * What executing a path does to the call stack, remembered: a path that begins in a stack it began in before does the
 * same again, and its calls and returns need not be followed one by one.
 *
 * A stack is known by its top frame's node as long as nothing in it was folded and no signal's frame is in it. Bounded:
 * when it is full, all is forgotten.
 */
#ifndef PTWEAVE_MERGE_MEMO_H
#define PTWEAVE_MERGE_MEMO_H

#include "frames.h"
#include "merge_api.h"

/* Where a path begins. */
struct memo_key {
	uint32_t path;
	uint32_t node;          /* of the top frame */
	uint32_t before;        /* block that ran last */
};

struct memo_entry {
	struct memo_key key;
	uint32_t dropped;       /* frames of the beginning that are gone at the end */
	uint32_t step;          /* first one of `steps` */
	uint32_t n_steps;
	uint32_t frame;         /* frames put in their place */
	uint32_t n_frames;
	uint32_t mark;          /* their ordinals count from the path's begin, as those of visits */
	uint32_t n_marks;
	uint32_t visit;
	uint32_t n_visits;
	uint32_t calls;         /* counted */
	uint32_t entered;       /* frames, counted or not */
	uint32_t credit;
	uint32_t follow;        /* entry + 1 that was done after it; 0 none */
	uint64_t window;        /* of the tree, in which it was done again */
	int64_t times;          /* so often: what its steps count is added up at the window's end (replay_settle) */
};

struct memo {
	struct memo_entry *entries;
	uint32_t *slots;        /* open addressing: entry + 1, 0 free */
	uint32_t *seen;         /* keys met once: worth remembering the second time */
	struct tape_step *steps;
	struct frame *frames;
	struct ptm_mark *marks;
	struct ptm_visit *visits;
	uint32_t *used;         /* entries that were done again in this window */
	uint32_t n_entries, n_steps, n_frames, n_marks, n_visits, n_used;
	uint32_t latest;        /* entry + 1 that was done last; 0 none */
};

void memo_deinit(struct memo *memo);
/* What a path did, or NULL. It is looked up last what is often asked for: what was done after the latest. */
struct memo_entry *memo_find(struct memo *memo, struct memo_key key);
/* True when the key was met lately; it is met now. -ENOMEM. */
int memo_meet(struct memo *memo, struct memo_key key);
/* True when there is room for what an entry's numbers say. */
bool memo_fits(const struct memo *memo, const struct memo_entry *entry);
void memo_forget(struct memo *memo);
/* A new entry that fits: to be filled. */
struct memo_entry *memo_add(struct memo *memo, const struct memo_entry *entry);

#endif
