/* SPDX-License-Identifier: MIT */
/* The memory's tables, each taken whole when the first key is met; pages that are not used cost nothing. */
#include "memo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	ENTRIES = 1 << 16,
	SLOTS = 2 * ENTRIES,
	SEEN = 1 << 16,
	STEPS = 1 << 20,
	FRAMES = 1 << 17,
	MARKS = 1 << 15,
	VISITS = 1 << 16,
};

void memo_init(struct memo *memo, size_t n_paths)
{
	*memo = (struct memo){ .n_paths = n_paths };
}

void memo_deinit(struct memo *memo)
{
	free(memo->likely);
	free(memo->entries);
	free(memo->slots);
	free(memo->seen);
	free(memo->steps);
	free(memo->frames);
	free(memo->marks);
	free(memo->visits);
	free(memo->used);
	memo_init(memo, memo->n_paths);
}

static int prepare(struct memo *memo)
{
	memo->entries = aligned_alloc(sizeof(*memo->entries), ENTRIES * sizeof(*memo->entries));
	memo->likely = calloc(memo->n_paths + 1, sizeof(*memo->likely));
	memo->slots = calloc(SLOTS, sizeof(*memo->slots));
	memo->seen = calloc(SEEN, sizeof(*memo->seen));
	memo->steps = malloc(STEPS * sizeof(*memo->steps));
	memo->frames = malloc(FRAMES * sizeof(*memo->frames));
	memo->marks = malloc(MARKS * sizeof(*memo->marks));
	memo->visits = malloc(VISITS * sizeof(*memo->visits));
	memo->used = malloc(ENTRIES * sizeof(*memo->used));
	if (memo->entries && memo->likely && memo->slots && memo->seen && memo->steps && memo->frames && memo->marks && memo->visits &&
	    memo->used)
		return 0;
	memo_deinit(memo);
	return -ENOMEM;
}

static uint64_t hash(struct memo_key key)
{
	uint64_t h = ((uint64_t)key.path << 32 | key.node) * 0x9e3779b97f4a7c15u;

	h ^= h >> 32;
	h = (h + key.before) * 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

static bool same(struct memo_key a, struct memo_key b)
{
	return a.path == b.path && a.node == b.node && a.before == b.before;
}

static uint32_t *find(const struct memo *memo, struct memo_key key)
{
	for (size_t i = hash(key) & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
		uint32_t *slot = &memo->slots[i];

		if (!*slot || same(memo->entries[*slot - 1].key, key))
			return slot;
	}
}

struct memo_entry *memo_find(struct memo *memo, struct memo_key key)
{
	uint32_t slot;

	if (!memo->likely || key.path >= memo->n_paths)
		return NULL;
	slot = memo->likely[key.path];
	if (!slot || !same(memo->entries[slot - 1].key, key))
		slot = *find(memo, key);
	if (!slot)
		return NULL;
	memo->likely[key.path] = slot;
	return &memo->entries[slot - 1];
}

int memo_meet(struct memo *memo, struct memo_key key)
{
	const uint64_t h = hash(key);
	const uint32_t tag = (uint32_t)(h >> 32) | 1;

	if (!memo->seen && prepare(memo) < 0)
		return -ENOMEM;
	uint32_t *seen = &memo->seen[h & (SEEN - 1)];
	const bool met = *seen == tag;

	*seen = tag;
	return met;
}

void memo_forget(struct memo *memo)
{
	if (memo->slots)
		memset(memo->slots, 0, SLOTS * sizeof(*memo->slots));
	if (memo->likely)
		memset(memo->likely, 0, memo->n_paths * sizeof(*memo->likely));
	memo->n_entries = memo->n_steps = memo->n_frames = memo->n_marks = memo->n_visits = memo->n_used = 0;
}

bool memo_fits(const struct memo *memo, const struct memo_entry *entry)
{
	return memo->n_entries < ENTRIES && entry->n_steps <= STEPS - memo->n_steps &&
	       entry->n_frames <= FRAMES - memo->n_frames && entry->n_marks <= MARKS - memo->n_marks &&
	       entry->n_visits <= VISITS - memo->n_visits;
}

struct memo_entry *memo_add(struct memo *memo, const struct memo_entry *entry)
{
	struct memo_entry *added = &memo->entries[memo->n_entries];

	*find(memo, entry->key) = ++memo->n_entries;
	*added = *entry;
	added->step = memo->n_steps;
	added->frame = memo->n_frames;
	added->mark = memo->n_marks;
	added->visit = memo->n_visits;
	memo->n_steps += entry->n_steps;
	memo->n_frames += entry->n_frames;
	memo->n_marks += entry->n_marks;
	memo->n_visits += entry->n_visits;
	return added;
}
