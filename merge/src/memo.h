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

/* As long as a line of the processor's cache: most of the time goes into waiting for entries. */
struct memo_entry {
	struct memo_key key;
	uint32_t dropped;       /* frames of the beginning that are gone at the end */
	uint32_t step;          /* first one of `steps` */
	uint32_t frame;         /* frames put in their place */
	uint32_t mark;          /* their ordinals count from the path's begin, as those of visits */
	uint32_t visit;
	uint16_t n_steps;
	uint16_t n_frames;
	uint16_t n_marks;
	uint16_t n_visits;
	uint32_t calls;         /* counted */
	uint32_t entered;       /* frames, counted or not */
	uint32_t credit;
	uint32_t times;         /* so often: what its steps count is added up at the window's end (replay_settle) */
	uint64_t window;        /* of the tree, in which it was done again */
};

_Static_assert(sizeof(struct memo_entry) == 64, "a line");

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
	uint32_t *likely;       /* entry + 1 that a path was last, by path; 0 none */
	size_t n_paths;
};

void memo_deinit(struct memo *memo);
void memo_init(struct memo *memo, size_t n_paths);
/* What a path did, or NULL. */
struct memo_entry *memo_find(struct memo *memo, struct memo_key key);
/* Soon a path will be looked up: its entry (if it is the one it was last) is fetched, and later what the entry names. */
static inline void memo_fetch(const struct memo *memo, uint32_t path);
static inline void memo_fetch_more(const struct memo *memo, uint32_t path);
/* True when the key was met lately; it is met now. -ENOMEM. */
int memo_meet(struct memo *memo, struct memo_key key);
/* True when there is room for what an entry's numbers say. */
bool memo_fits(const struct memo *memo, const struct memo_entry *entry);
void memo_forget(struct memo *memo);
/* A new entry that fits: to be filled. */
struct memo_entry *memo_add(struct memo *memo, const struct memo_entry *entry);

static inline const struct memo_entry *memo_likely(const struct memo *memo, uint32_t path)
{
	const uint32_t slot = memo->likely && path < memo->n_paths ? memo->likely[path] : 0;

	return slot ? &memo->entries[slot - 1] : NULL;
}

static inline void memo_fetch(const struct memo *memo, uint32_t path)
{
	const struct memo_entry *entry = memo_likely(memo, path);

	if (entry)
		__builtin_prefetch(entry);
}

static inline void memo_fetch_more(const struct memo *memo, uint32_t path)
{
	const struct memo_entry *entry = memo_likely(memo, path);

	if (entry)
		__builtin_prefetch(&memo->frames[entry->frame]);
}

#endif
