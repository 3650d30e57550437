/* SPDX-License-Identifier: MIT */
/* Exact sets: what a thunk opened is closed at its end, so that every thunk faults for its own. */
#define _GNU_SOURCE
#include "access.h"

#define opened ((uint32_t *)PTW_OWN_OPENED)
#define OPENED_MAX (PTW_OWN_OPENED_SIZE / sizeof(uint32_t))

static uint64_t count;

void ptw_exact_begin(void) { count = 0; }

void ptw_exact_opened(uint32_t page, uint32_t pages)
{
	/* a page that was read before is in the list already; twice does not harm */
	for (uint32_t i = 0; i < pages && count < OPENED_MAX; i++)
		opened[count++] = page + i;
}

void ptw_exact_boundary(void)
{
	uint64_t mask;
	if (count == 0)
		return;
	ptw_block_signals(&mask);
	ptw_pages_close(opened, (uint32_t)count);
	count = 0;
	ptw_access_log_end(0, 0);
	ptw_restore_signals(&mask);
}
