/* SPDX-License-Identifier: MIT */
/* Places in a thread's flow that were asked for, in order. Grows; not thread-safe; freed by visits_deinit. */
#ifndef PTWEAVE_MERGE_VISITS_H
#define PTWEAVE_MERGE_VISITS_H

#include "merge_api.h"

struct visits {
	struct ptm_visit *items;
	size_t n;
	size_t room;
};

/* 0 or -ENOMEM. */
int visits_put(struct visits *visits, int64_t seq, uint32_t block, enum ptm_visit_kind kind);
void visits_deinit(struct visits *visits);

#endif
