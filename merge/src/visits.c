/* SPDX-License-Identifier: MIT */
/* Visits; see visits.h. */
#include "visits.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST = 1024 };

int visits_put(struct visits *visits, int64_t seq, uint32_t block, enum ptm_visit_kind kind)
{
	if (visits->n == visits->room) {
		const size_t room = visits->room ? 2 * visits->room : FIRST;
		struct ptm_visit *items = realloc(visits->items, room * sizeof(*items));

		if (!items)
			return -ENOMEM;
		visits->items = items;
		visits->room = room;
	}
	visits->items[visits->n++] = (struct ptm_visit){ .seq = seq, .block = (int32_t)block, .kind = (int32_t)kind };
	return 0;
}

void visits_deinit(struct visits *visits)
{
	free(visits->items);
	*visits = (struct visits){ 0 };
}
