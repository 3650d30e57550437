/* SPDX-License-Identifier: MIT */
/* The memory's tables, each taken whole when the first key is met; pages that are not used cost nothing. */
#define _GNU_SOURCE /* madvise */
#include "memo.h"
#include "pages.h"

#include <errno.h>
#include <string.h>

enum {
	SEEN = 1 << 20, /* with fewer, keys are forgotten before they are met again: gcc has a million */
	STEPS = 8 * MEMO_ENTRIES,
	PLACES = MEMO_ENTRIES / 8,
	MARKS = MEMO_ENTRIES / 8,
	VISITS = MEMO_ENTRIES / 2,
	LINE = 64, /* of the processor's cache: a table begins with one */
};

void memo_init(struct memo *memo, size_t n_paths)
{
	*memo = (struct memo){ .n_paths = n_paths };
}

void memo_deinit(struct memo *memo)
{
	pages_drop(memo->pages, memo->size);
	memo_init(memo, memo->n_paths);
}

/* The next table in the pages. */
static void *table(struct memo *memo, size_t *used, size_t size)
{
	void *begin = memo->pages ? (char *)memo->pages + *used : NULL;

	*used += (size + LINE - 1) & ~(size_t)(LINE - 1);
	return begin;
}

/* Give each table its place: first those that are filled here and there, then those that are from their begin on, of
 * which entries alone are read at random, and fetched before. Returns the size of all, `scattered` is that of the first. */
static size_t lay_out(struct memo *memo, size_t *scattered)
{
	size_t used = 0;

	memo->likely = table(memo, &used, (memo->n_paths + 1) * sizeof(*memo->likely));
	memo->slots = table(memo, &used, MEMO_SLOTS * sizeof(*memo->slots));
	memo->seen = table(memo, &used, SEEN * sizeof(*memo->seen));
	*scattered = used;
	memo->entries = table(memo, &used, MEMO_ENTRIES * sizeof(*memo->entries));
	memo->steps = table(memo, &used, STEPS * sizeof(*memo->steps));
	memo->places = table(memo, &used, PLACES * sizeof(*memo->places));
	memo->marks = table(memo, &used, MARKS * sizeof(*memo->marks));
	memo->visits = table(memo, &used, VISITS * sizeof(*memo->visits));
	memo->used = table(memo, &used, MEMO_ENTRIES * sizeof(*memo->used));
	return used;
}

static int prepare(struct memo *memo)
{
	size_t scattered;

	memo->size = lay_out(memo, &scattered);
	memo->pages = pages_take(memo->size, scattered);
	if (!memo->pages)
		return -ENOMEM;
	lay_out(memo, &scattered);
	return 0;
}

int memo_meet(struct memo *memo, struct memo_key key)
{
	const uint64_t h = memo_hash(key);
	const uint32_t tag = (uint32_t)(h >> 32) | 1;

	if (!memo->pages && prepare(memo) < 0)
		return -ENOMEM;
	if (memo_has_plenty(memo))
		return 1;
	uint32_t *seen = &memo->seen[h & (SEEN - 1)];
	const bool met = *seen == tag;

	*seen = tag;
	return met;
}

void memo_forget(struct memo *memo)
{
	if (memo->slots)
		memset(memo->slots, 0, MEMO_SLOTS * sizeof(*memo->slots));
	if (memo->likely)
		memset(memo->likely, 0, memo->n_paths * sizeof(*memo->likely));
	memo->n_entries = memo->n_steps = memo->n_places = memo->n_marks = memo->n_visits = memo->n_used = 0;
}

void memo_drop_counts(struct memo *memo)
{
	for (uint32_t i = 0; i < memo->n_used; i++) {
		memo->entries[memo->used[i]].total = 0;
		memo->entries[memo->used[i]].time = 0;
	}
	memo->n_used = 0;
}

bool memo_fits(const struct memo *memo, const struct memo_entry *entry, const struct memo_places *places)
{
	return memo->n_entries < MEMO_ENTRIES && entry->n_steps <= STEPS - memo->n_steps && memo->n_places < PLACES &&
	       places->n_marks <= MARKS - memo->n_marks && places->n_visits <= VISITS - memo->n_visits;
}

bool memo_has_plenty(const struct memo *memo)
{
	return memo->n_entries < MEMO_ENTRIES / 4 * 3 && memo->n_steps < STEPS / 4 * 3;
}

struct memo_entry *memo_add(struct memo *memo, const struct memo_entry *entry, struct memo_places *places)
{
	const uint64_t h = memo_hash(entry->key);
	struct memo_entry *added = &memo->entries[memo->n_entries];

	*memo_slot(memo, entry->key, h) = (h & ~(uint64_t)UINT32_MAX) | (memo->n_entries + 1);
	memo->likely[entry->key.path] = ++memo->n_entries;
	*added = *entry;
	added->step = memo->n_steps;
	memo->n_steps += entry->n_steps;
	if (places->n_marks || places->n_visits) {
		places->mark = memo->n_marks;
		places->visit = memo->n_visits;
		memo->n_marks += places->n_marks;
		memo->n_visits += places->n_visits;
		memo->places[memo->n_places++] = *places;
		added->place = memo->n_places;
	}
	return added;
}
