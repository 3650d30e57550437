/* SPDX-License-Identifier: MIT */
/* The innermost return addresses at executed markers, each distinct list once: millions of markers have a few lists. */
#ifndef PTWEAVE_MERGE_CALLERS_H
#define PTWEAVE_MERGE_CALLERS_H

#include "merge_api.h"

struct ptm_callers {
	struct ptm_returns *items;
	size_t n;
	size_t room;
	uint32_t *slots;        /* open addressing: item + 1, 0 free */
	size_t n_slots;         /* a power of two, twice `room` */
};

/* The number of a list: the next one when it is met first. -ENOMEM. */
int callers_number(struct ptm_callers *callers, const struct ptm_returns *item, uint32_t *ret);

#endif
