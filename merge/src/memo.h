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

#include <stdbool.h>

#include "merge_api.h"
#include "tape.h"

enum { MEMO_FOLLOWING = 2 };

/* Where a path begins. */
struct memo_key {
	uint32_t path;
	uint32_t node;          /* of the top frame */
	uint32_t manner;        /* of the block that ran last: program_manner */
};

/* As long as a line of the processor's cache: most of the time goes into waiting for entries. */
struct memo_entry {
	struct memo_key key;
	uint32_t node;          /* of the top frame at its end */
	uint32_t manner;        /* of its last block */
	uint16_t length;        /* in blocks: see tape.h */
	uint16_t credit;
	uint32_t step;          /* first one of `steps` */
	uint16_t n_steps;
	uint16_t calls;         /* counted: a step has one at most */
	uint32_t place;         /* + 1 of `places`; 0: it has no marks or visits */
	uint32_t ahead;         /* + 1 of the entry that came MEMO_AHEAD later the last time; 0 unknown */
	uint32_t following[MEMO_FOLLOWING]; /* the same, of those that came next */
	uint16_t after[MEMO_FOLLOWING]; /* a part of the path of each of these */
	uint32_t total;         /* so often this thread did it since its steps were counted last (replay_settle) */
	uint64_t time;          /* a block's (timeline.h), summed over the times that lay between two known moments */
};

_Static_assert(sizeof(struct memo_entry) == 64, "a line");

/* What is to be noted down; ordinals count from the path's begin. */
struct memo_places {
	uint32_t mark;
	uint32_t visit;
	uint32_t n_marks;
	uint32_t n_visits;
};

struct memo {
	void *pages;            /* that hold the tables below; NULL: there are none yet */
	size_t size;
	struct memo_entry *entries;
	uint64_t *slots;        /* open addressing: half of the key's hash, and entry + 1; 0 free */
	uint32_t *seen;         /* keys met once: where there is little room, worth remembering the second time */
	struct tape_step *steps;
	struct memo_places *places;
	struct ptm_mark *marks;
	struct ptm_visit *visits;
	uint32_t *used;         /* entries whose `total` is not 0 */
	uint32_t *likely;       /* entry + 1 that a path was last, by path; 0 none */
	size_t n_paths;
	uint32_t n_entries, n_steps, n_places, n_marks, n_visits, n_used;
};

#ifndef MEMO_BITS
#define MEMO_BITS 20 /* tests take less, so that it is full soon */
#endif

#ifndef MEMO_COUNTED
#define MEMO_COUNTED UINT32_MAX /* that an entry counts before its steps are; tests take less */
#endif

enum {
	MEMO_SLOTS = 1 << MEMO_BITS,
	MEMO_ENTRIES = MEMO_SLOTS / 4 * 3,
	MEMO_AHEAD = 4,
};

void memo_deinit(struct memo *memo);
void memo_init(struct memo *memo, size_t n_paths);
/* True when the key is worth remembering: there is plenty of room, or it was met lately; it is met now. -ENOMEM. */
int memo_meet(struct memo *memo, struct memo_key key);
/* True when there is room for an entry with these places, marks and visits. */
bool memo_fits(const struct memo *memo, const struct memo_entry *entry, const struct memo_places *places);
/* True when there is so much room that even what saves little is worth remembering. */
bool memo_has_plenty(const struct memo *memo);
void memo_forget(struct memo *memo);
/* What was counted of entries is given up: another thread. */
void memo_drop_counts(struct memo *memo);
/* A new entry that fits: its steps, marks and visits are to be filled. Those of `places` are numbered here. */
struct memo_entry *memo_add(struct memo *memo, const struct memo_entry *entry, struct memo_places *places);

static inline uint64_t memo_hash(struct memo_key key)
{
	uint64_t h = ((uint64_t)key.path << 32 | key.node) * 0x9e3779b97f4a7c15u;

	h ^= h >> 32;
	h = (h + key.manner) * 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

static inline bool memo_is(const struct memo_entry *entry, struct memo_key key)
{
	return entry->key.path == key.path && entry->key.node == key.node && entry->key.manner == key.manner;
}

/* The slot that holds the key, or the free one where it would go. */
static inline uint64_t *memo_slot(const struct memo *memo, struct memo_key key, uint64_t h)
{
	for (size_t i = h & (MEMO_SLOTS - 1);; i = (i + 1) & (MEMO_SLOTS - 1)) {
		uint64_t *slot = &memo->slots[i];

		if (!*slot || (!((*slot ^ h) >> 32) && memo_is(&memo->entries[(uint32_t)*slot - 1], key)))
			return slot;
	}
}

/* What a path did, or NULL. */
static inline struct memo_entry *memo_find(const struct memo *memo, struct memo_key key)
{
	uint32_t number;

	if (!memo->likely || key.path >= memo->n_paths)
		return NULL;
	number = memo->likely[key.path];
	if (!number) /* none of this path is remembered */
		return NULL;
	if (!memo_is(&memo->entries[number - 1], key))
		number = (uint32_t)*memo_slot(memo, key, memo_hash(key));
	if (!number)
		return NULL;
	memo->likely[key.path] = number;
	return &memo->entries[number - 1];
}

/* The entry that came MEMO_AHEAD behind this one is fetched; `before` is the one that came so long before it. */
static inline void memo_look_ahead(const struct memo *memo, struct memo_entry *entry, struct memo_entry **before)
{
	if (entry->ahead)
		__builtin_prefetch(&memo->entries[entry->ahead - 1], 1);
	if (*before)
		(*before)->ahead = (uint32_t)(entry - memo->entries) + 1;
	*before = entry;
}

/* Soon a path that there is will be looked up: its entry (if it is the one it was last) is fetched. False when none of it
 * is remembered. */
static inline bool memo_fetch(const struct memo *memo, uint32_t path)
{
	if (!memo->likely || !memo->likely[path])
		return false;
	__builtin_prefetch(&memo->entries[memo->likely[path] - 1], 1);
	return true;
}

#endif
