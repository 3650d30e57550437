/* SPDX-License-Identifier: MIT */
/* Executing paths as they were executed before; see memo.h. */
#ifndef PTWEAVE_MERGE_REPLAY_H
#define PTWEAVE_MERGE_REPLAY_H

#include "walk.h"

enum replay {
	REPLAY_DONE,    /* the path is executed */
	REPLAY_RECORD,  /* it has to be walked, and is worth remembering: replay_begin before, replay_store after */
	REPLAY_WALK,    /* it has to be walked */
};

/* Execute a path of `number`, reached, which has no event before its end, if it is known. Negative errno. */
int replay_path(struct ptm_walk *walk, uint32_t number);
/* Write down what the walk of that path does. -ENOMEM, as replay_store. */
int replay_begin(struct ptm_walk *walk, uint32_t number);
int replay_store(struct ptm_walk *walk);
/* Count what was executed again in this window: must come before the window's time is handed out. */
void replay_settle(struct ptm_walk *walk);

#endif
