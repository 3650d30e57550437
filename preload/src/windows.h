/* SPDX-License-Identifier: MIT */
/*
 * Windows: how many pages a fault opens. Where accesses go on page after page, each fault opens twice as many as the one
 * before, up to PTW_WINDOW_MAX, and never beyond the run, span, segment or file that the page is in.
 *
 * Of a thread; signal-safe with signals blocked.
 */
#ifndef PTW_WINDOWS_H
#define PTW_WINDOWS_H

#include "sys.h"

/* The last windows of several runs, since a loop goes through more than one. */
enum { PTW_RUNS = 8 };

struct ptw_windows {
	uint32_t end[PTW_RUNS], size[PTW_RUNS];
	uint32_t next; /* to be forgotten */
};

PTW_HIDDEN void ptw_windows_forget(struct ptw_windows *windows);

/* Pages to open from `page` on; `level` is the logarithm of their least number. */
PTW_HIDDEN uint32_t ptw_window_from(struct ptw_windows *windows, uint32_t page, uint32_t level);

#endif
