/* SPDX-License-Identifier: MIT */
/*
 * Process mode: synchronisation. glibc's own implementation does the work, on the object's alias (alias.h) and with the
 * object marked process-shared, whatever its attributes said: its types, errors, time-outs, robustness, priority
 * inheritance and cancellation points are glibc's. An object in memory that is not shared by all threads (alias.h) is left
 * as it is marked.
 *
 * Around it, thunks end: before a release and after an acquire (ptw_pages_boundary). Before a barrier's and a condition
 * wait's release the interposer does that, since it logs the release by itself.
 */
#ifndef PTW_PSYNC_H
#define PTW_PSYNC_H

#include "real.h"

/* Put them behind the interposers. */
PTW_HIDDEN void ptw_psync_mutex_use(struct ptw_real *table);
PTW_HIDDEN void ptw_psync_cond_use(struct ptw_real *table);
PTW_HIDDEN void ptw_psync_other_use(struct ptw_real *table);

#endif
