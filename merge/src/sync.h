/* SPDX-License-Identifier: MIT */
/*
 * Where two sequences that went apart agree again. Not thread-safe: the scratch memory is the caller's `struct sync`,
 * freed by sync_deinit. Everything is bounded: SYNC_WINDOW elements a side, SYNC_EDITS edits; and all searches together, by
 * whoever keeps to sync_allow.
 */
#ifndef PTWEAVE_MERGE_SYNC_H
#define PTWEAVE_MERGE_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SYNC_WINDOW = 8192, /* elements looked at on each side, at most */
	SYNC_EDITS = 2048,  /* insertions and deletions looked for, at most */
	SYNC_LEAST = 64,    /* and always, however much was searched before */
};

/* Elements of one side from where they went apart on. `whole`: nothing follows them. */
struct sync_window {
	const uint64_t *keys;
	size_t n;
	bool whole;
};

struct sync {
	int32_t *rows;      /* furthest places, a row for each number of edits */
	size_t room;
	bool careful;       /* behind a hole: only a long stretch is no accident */
	int32_t edits;      /* looked for at most, now */
	int64_t spent;      /* places looked at, by all searches */
};

void sync_init(struct sync *sync);
void sync_deinit(struct sync *sync);
/* `walked` elements were gone through so far: they allow so many edits. Searching takes a share of the time. */
void sync_allow(struct sync *sync, int64_t walked);
/*
 * The first places from which both go on alike, of `a` and of `b`, with as few elements left out as possible. `n` of a
 * side when it is only its end that agrees. 1: found; 0: not within these windows; -ENOMEM.
 */
int sync_find(struct sync *sync, const struct sync_window *a, const struct sync_window *b, size_t at[2]);
/* The same where more of both is to be had: found only where the first that are no accident are `sure` or more, and alike
 * up to the end of a window. What is behind that would be little reason to think better of it. */
int sync_find_brief(struct sync *sync, const struct sync_window *a, const struct sync_window *b, int32_t sure,
		    size_t at[2]);

#endif
