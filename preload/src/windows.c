/* SPDX-License-Identifier: MIT */
/* Windows; windows.h says what they are. */
#define _GNU_SOURCE
#include "windows.h"

#include "files.h"
#include "limits.h"
#include "pages_inner.h"
#include "passed.h"
#include "segments.h"
#include "units.h"
#include "view.h"

#include <string.h>

void ptw_windows_forget(struct ptw_windows *windows) { memset(windows->end, 0xff, sizeof windows->end); }

/* Whether a window may go on from the page before to `page`: it ends with the run, span, segment or file it is in. */
static bool continues(uint32_t before, uint32_t page)
{
	if (ptw_page_states[page] != ptw_page_states[before] || ptw_limits[page] ||
	    ptw_is_passed(ptw_page_address(page)))
		return false;
	if (page >= PTW_MEMFD_PAGES)
		return ptw_files_same(before, page);
	if (ptw_private && (ptw_page_traits[page] & PTW_PASSED))
		return false;
	if (page >= PTW_REGION_PAGES)
		return ptw_page_segment(page) != NULL && ptw_page_segment(page) == ptw_page_segment(before);
	uint64_t address = PTW_REGION + page * PTW_PAGE;
	if (address < PTW_HEAP)
		return false;
	return (address & (PTW_UNIT - 1)) != 0 || ptw_units[ptw_unit_of(address)].kind == PTW_UNIT_NEVER;
}

static uint32_t run_of(struct ptw_windows *windows, uint32_t page)
{
	for (uint32_t i = 0; i < PTW_RUNS; i++) {
		if (windows->end[i] != page)
			continue;
		windows->size[i] *= 2;
		return i;
	}
	uint32_t run = windows->next++ % PTW_RUNS;
	windows->size[run] = 1;
	return run;
}

uint32_t ptw_window_from(struct ptw_windows *windows, uint32_t page, uint32_t level)
{
	uint32_t run = run_of(windows, page), size = windows->size[run], count = 1;
	if (size < 1u << level)
		size = 1u << level;
	if (size > PTW_WINDOW_MAX)
		size = PTW_WINDOW_MAX;
	while (count < size && continues(page + count - 1, page + count))
		count++;
	windows->size[run] = size;
	windows->end[run] = page + count;
	return count;
}
