/* SPDX-License-Identifier: MIT */
/*
 * Process mode: a thread of the main process that takes signals for the program which the main thread blocks, and has
 * them handed to a thread that can take them (pending.h). It also does errands (errand.h) and passes on what timers say
 * (timers.c). It blocks all signals and waits for them, so nothing ever interrupts it; it touches nothing that could be
 * closed.
 */
#ifndef PTW_HERALD_H
#define PTW_HERALD_H

#include "sys.h"

/* Begin, if there is none. For the main thread, with all signals blocked. 0 or an error number. */
PTW_HIDDEN int ptw_herald_start(void);

/* In a fork child: there is none. */
PTW_HIDDEN void ptw_herald_forget(void);

#endif
