/* SPDX-License-Identifier: MIT */
/* Private copies; twins.h says what is guaranteed. */
#define _GNU_SOURCE
#include "twins.h"

PTW_CHANGING uint32_t ptw_copy_count;

/* Entries [0, high) were ever used: each has a twin, whether it is in use or not. */
static PTW_CHANGING uint32_t high;

void ptw_twins_begin(void) { ptw_copy_count = high = 0; }

struct ptw_copy *ptw_copy_add(uint32_t page)
{
	struct ptw_copy *copy = &ptw_copies[ptw_copy_count++];
	if (ptw_copy_count > high)
		copy->twin = high++;
	copy->page = page;
	copy->idle = copy->changed = 0;
	ptw_copy_of[page] = ptw_copy_count;
	__atomic_fetch_add(&ptw_page_copies[page], 1, __ATOMIC_SEQ_CST);
	return copy;
}

void ptw_copy_remove(struct ptw_copy *copy)
{
	struct ptw_copy *last = &ptw_copies[--ptw_copy_count], gone = *copy;
	ptw_copy_of[gone.page] = PTW_NO_COPY;
	if (copy != last) {
		*copy = *last;
		ptw_copy_of[copy->page] = (uint32_t)(copy - ptw_copies) + 1;
		last->twin = gone.twin;
	}
	__atomic_fetch_sub(&ptw_page_copies[gone.page], 1, __ATOMIC_SEQ_CST);
}
