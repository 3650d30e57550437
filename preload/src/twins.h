/* SPDX-License-Identifier: MIT */
/*
 * The private copies this process has, and their twins: what the page held when the copy was made, or was last brought
 * up to date. A table by page, a dense list, and a page of twin for each. Signals must be blocked.
 */
#ifndef PTW_TWINS_H
#define PTW_TWINS_H

#include "view.h"

struct ptw_copy {
	uint32_t page;
	uint32_t version; /* of the shared page when twin and copy were equal to it */
	uint32_t twin;
	uint16_t idle;    /* boundaries in a row that found nothing changed */
	uint16_t changed; /* since the last boundary */
};
_Static_assert(sizeof(struct ptw_copy) == 16, "their place in the layout");

enum { PTW_NO_COPY = 0, PTW_SHARED_HERE = UINT32_MAX }; /* this process maps the page shared */

#define ptw_copies ((struct ptw_copy *)PTW_OWN_COPIES)
#define ptw_copy_of ((uint32_t *)PTW_OWN_COPY_OF) /* index in ptw_copies + 1, or one of the above */

/* How many there are. */
extern PTW_HIDDEN uint32_t ptw_copy_count;

static inline char *ptw_twin(const struct ptw_copy *copy) { return (char *)(PTW_OWN_TWINS + copy->twin * PTW_PAGE); }

static inline struct ptw_copy *ptw_copy_find(uint32_t page)
{
	uint32_t index = ptw_copy_of[page];
	return index == PTW_NO_COPY || index == PTW_SHARED_HERE ? NULL : &ptw_copies[index - 1];
}

/* A process begins: it has none. */
PTW_HIDDEN void ptw_twins_begin(void);

/* There must be room: fewer than PTW_TWINS. The caller fills twin and version in. */
PTW_HIDDEN struct ptw_copy *ptw_copy_add(uint32_t page);

/* The last of the list takes its place: go through the list from its end. */
PTW_HIDDEN void ptw_copy_remove(struct ptw_copy *copy);

#endif
