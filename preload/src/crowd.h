/* SPDX-License-Identifier: MIT */
/*
 * Process mode: how many mappings this process has. Each run of pages with a protection of its own is one to the kernel,
 * and there is a limit (vm.max_map_count). Before it is reached everything is closed, and opened again as it is needed.
 *
 * Counted from above: setting a protection makes two mappings more at most; when that comes near the limit, they are
 * counted. For the process's one thread; signal-safe.
 */
#ifndef PTW_CROWD_H
#define PTW_CROWD_H

#include "sys.h"

#include <stdbool.h>

extern PTW_HIDDEN uint32_t ptw_crowd_most, ptw_crowd_limit;

PTW_HIDDEN void ptw_crowd_init(void);

/* Most were merged: begin to count again. */
PTW_HIDDEN void ptw_crowd_begin(void);

PTW_HIDDEN bool ptw_crowd_count(void);

/* A protection was set. */
static inline void ptw_crowd_add(void) { ptw_crowd_most += 2; }

/* Is it time to close everything? */
static inline bool ptw_crowded(void)
{
	return __builtin_expect(ptw_crowd_most > ptw_crowd_limit, 0) && ptw_crowd_count();
}

#endif
