/* SPDX-License-Identifier: MIT */
/* Executing paths as they were executed before; see memo.h. */
#ifndef PTWEAVE_MERGE_REPLAY_H
#define PTWEAVE_MERGE_REPLAY_H

#include "walk.h"

/*
 * Execute paths, the first of which is reached, as long as they are known, follow each other and no event comes before
 * their ends. Returns how many; the stack is right afterwards. -ENOMEM, as all here.
 */
int64_t replay_paths(struct ptm_walk *walk, const int64_t *seqs, const int32_t *paths, size_t n);
/* 1 when a path that is not known is worth remembering: replay_begin before its walk, replay_store after. */
int replay_wants(struct ptm_walk *walk, uint32_t number);
int replay_begin(struct ptm_walk *walk, uint32_t number);
int replay_store(struct ptm_walk *walk);
/* Count what was executed again: must come before the thread's counters are read. */
void replay_settle(struct ptm_walk *walk);

#endif
