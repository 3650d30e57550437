/* SPDX-License-Identifier: MIT */
/*
 * Scouts run ahead on both sides from where these went apart, and list what is executed in the frame in which it happened,
 * and in its callers; calls from there are passed over. They find where these lists agree again.
 *
 * Everything is bounded: a list has SYNC_WINDOW elements at most, and all scouts of two threads together run no more than a
 * multiple of the blocks that both sides have walked. Not thread-safe; scouts_deinit frees.
 */
#ifndef PTWEAVE_MERGE_SCOUTS_H
#define PTWEAVE_MERGE_SCOUTS_H

#include "side.h"
#include "sync.h"

enum {
	FIRST_WINDOW = 128,    /* elements scouted at first; eight times as many each time nothing is found */
	ANY_DEPTH = INT32_MAX, /* a level: every frame counts */
};

/* Where a side is while it is apart. */
struct departure {
	struct element next; /* element it is at */
	bool there;          /* there is one; else it ended */
	size_t level;        /* frames of the one it happened in: what is deeper is passed over */
};

struct scouts {
	struct sync sync;
	uint64_t *keys[2]; /* listed */
	int64_t *seqs[2];
	int64_t scouted;   /* blocks, of these two threads */
	int64_t freely;    /* blocks to be scouted before it is looked whether less will do */
};

int scouts_init(struct scouts *scouts, int64_t freely);
void scouts_deinit(struct scouts *scouts);
/* Two other threads. */
void scouts_begin(struct scouts *scouts);
/* Where both go on alike: ordinals of their elements, -1 a side's end. `careful`: behind a hole. 1: found; 0: not; or an
 * error. */
int scouts_find(struct scouts *scouts, struct side sides[2], const struct departure from[2], bool careful, int64_t ret[2]);

#endif
