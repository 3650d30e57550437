/* SPDX-License-Identifier: MIT */
/*
 * Call stacks of thunks, each distinct one numbered once: 0, 1, … as they are met first. There are millions of thunks and
 * thousands of stacks.
 *
 * Memory: the stacks that are remembered, at most EVL_STACK_WORDS of them in words and what one batch of rows adds; when
 * there are more, all are forgotten, and one that comes again has a second number. Not thread-safe.
 */
#ifndef PTW_EVL_STACKS_H
#define PTW_EVL_STACKS_H

#include <stddef.h>
#include <stdint.h>

enum {
	EVL_STACK_WORDS = 1 << 22, /* 32 MB */
	EVL_NO_STACK = -1,
};

struct evl_stacks {
	uint64_t *words;   /* frames of stack i, innermost first: words[offsets[i]] … words[offsets[i + 1] - 1] */
	uint32_t *offsets; /* count + 1 of them */
	uint32_t *hashes;
	uint32_t *slots; /* a hash table: stack + 1, or 0 */
	size_t word_room, room, n_slots;
	uint32_t count;
	uint32_t given; /* of them were handed out */
	int32_t first;  /* number of stack 0 */
};

void evl_stacks_deinit(struct evl_stacks *stacks);

/* The number of a stack (`frames` words that need not be aligned), EVL_NO_STACK of an empty one, into *ret. 1: it is new,
 * 0: it is not, -ENOMEM, -EOVERFLOW: there are more than numbers. */
int evl_stacks_number(struct evl_stacks *stacks, const unsigned char *stack, unsigned frames, int32_t *ret);

/* Stacks that were not handed out yet, in the order of their numbers: their frames, and offsets into these, one more than
 * stacks (the first may be other than 0). Returns how many; they are handed out now. Valid until the next call. */
uint32_t evl_stacks_new(struct evl_stacks *stacks, const uint32_t **ret_offsets, const uint64_t **ret_words);

/* Forget them when there are too many, and all were handed out. */
void evl_stacks_trim(struct evl_stacks *stacks);

#endif
