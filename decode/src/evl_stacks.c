/* SPDX-License-Identifier: MIT */
/* Numbering call stacks; see evl_stacks.h. */
#include "evl_stacks.h"

#include "grow.h"
#include "hash.h"

#include <string.h>

enum { FIRST_STACKS = 64 };

void evl_stacks_deinit(struct evl_stacks *stacks)
{
	free(stacks->words);
	free(stacks->offsets);
	free(stacks->hashes);
	free(stacks->slots);
	*stacks = (struct evl_stacks){0};
}

static uint32_t hash_of(const unsigned char *stack, unsigned frames)
{
	uint64_t hash = frames;
	for (unsigned i = 0; i < frames; i++) {
		uint64_t word;
		memcpy(&word, stack + i * sizeof word, sizeof word);
		hash = ptd_mix2(hash, word);
	}
	return (uint32_t)(hash ^ hash >> 32);
}

static uint32_t *slot_for(const struct evl_stacks *stacks, uint32_t hash, const unsigned char *stack, unsigned frames)
{
	for (size_t at = hash;; at++) {
		uint32_t *slot = &stacks->slots[at & (stacks->n_slots - 1)];
		if (*slot == 0)
			return slot;
		uint32_t i = *slot - 1;
		const uint32_t begin = stacks->offsets[i];
		if (stacks->hashes[i] == hash && stacks->offsets[i + 1] - begin == frames &&
		    memcmp(stacks->words + begin, stack, frames * sizeof *stacks->words) == 0)
			return slot;
	}
}

static void fill_slots(struct evl_stacks *stacks)
{
	memset(stacks->slots, 0, stacks->n_slots * sizeof *stacks->slots);
	for (uint32_t i = 0; i < stacks->count; i++) {
		size_t at = stacks->hashes[i];
		while (stacks->slots[at & (stacks->n_slots - 1)])
			at++;
		stacks->slots[at & (stacks->n_slots - 1)] = i + 1;
	}
}

/* Room for one more stack; the table is at most half full. */
static int reserve(struct evl_stacks *stacks, unsigned frames)
{
	const size_t words = (stacks->count ? stacks->offsets[stacks->count] : 0) + (size_t)frames;
	if (words > stacks->word_room) {
		const size_t room = 2 * words;
		if (ptd_grow(&stacks->words, room, sizeof *stacks->words) < 0)
			return -ENOMEM;
		stacks->word_room = room;
	}
	if (stacks->count < stacks->room)
		return 0;
	const size_t room = stacks->room ? 2 * stacks->room : FIRST_STACKS;
	if (ptd_grow(&stacks->offsets, room + 1, sizeof *stacks->offsets) < 0 ||
	    ptd_grow(&stacks->hashes, room, sizeof *stacks->hashes) < 0 ||
	    ptd_grow(&stacks->slots, 2 * room, sizeof *stacks->slots) < 0)
		return -ENOMEM;
	stacks->room = room;
	stacks->n_slots = 2 * room;
	fill_slots(stacks);
	return 0;
}

int evl_stacks_number(struct evl_stacks *stacks, const unsigned char *stack, unsigned frames, int32_t *ret)
{
	*ret = EVL_NO_STACK;
	if (frames == 0)
		return 0;
	int error = reserve(stacks, frames);
	if (error)
		return error;
	if (stacks->first > INT32_MAX - (int32_t)stacks->count - 1)
		return -EOVERFLOW;
	const uint32_t hash = hash_of(stack, frames);
	uint32_t *slot = slot_for(stacks, hash, stack, frames);
	const int new = *slot == 0;
	if (new) {
		const uint32_t i = stacks->count++;
		if (i == 0)
			stacks->offsets[0] = 0;
		memcpy(stacks->words + stacks->offsets[i], stack, frames * sizeof *stacks->words);
		stacks->offsets[i + 1] = stacks->offsets[i] + frames;
		stacks->hashes[i] = hash;
		*slot = i + 1;
	}
	*ret = stacks->first + (int32_t)(*slot - 1);
	return new;
}

uint32_t evl_stacks_new(struct evl_stacks *stacks, const uint32_t **ret_offsets, const uint64_t **ret_words)
{
	const uint32_t count = stacks->count - stacks->given;
	*ret_offsets = count ? stacks->offsets + stacks->given : NULL;
	*ret_words = stacks->words;
	stacks->given = stacks->count;
	return count;
}

void evl_stacks_trim(struct evl_stacks *stacks)
{
	if (stacks->count == 0 || stacks->given < stacks->count || stacks->offsets[stacks->count] < EVL_STACK_WORDS)
		return;
	stacks->first += (int32_t)stacks->count;
	stacks->count = stacks->given = 0;
	memset(stacks->slots, 0, stacks->n_slots * sizeof *stacks->slots);
}
