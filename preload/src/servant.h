/* SPDX-License-Identifier: MIT */
/*
 * Process mode: threads of the main process that are the library's own and no threads of the program: the warden and
 * the herald, and those that watch for children. They block all signals, are in no list of the C library's, and change user ids with the program.
 */
#ifndef PTW_SERVANT_H
#define PTW_SERVANT_H

#include "sys.h"

#include <stdbool.h>

/* The name they have (ps -L); ptweave.data.sideband knows it. */
#define PTW_SERVANT_NAME "ptweave-servant"

enum ptw_servant { PTW_WARDEN, PTW_HERALD, PTW_SERVANTS, PTW_WATCHER /* not one that needs the ids */ };

/* Begin one. For the main process, all signals blocked. 0 or an error number. */
PTW_HIDDEN int ptw_servant_start(void *(*routine)(void *), void *argument);

/* It says so first of all. */
PTW_HIDDEN void ptw_servant_begin(enum ptw_servant which);

/* Is the calling thread one? */
PTW_HIDDEN bool ptw_servant_is_one(void);

/* Send each of them the control signal. */
PTW_HIDDEN void ptw_servants_call(void);

#endif
