/* SPDX-License-Identifier: MIT */
/*
 * Process mode: a thread of the main process that waits for the others to die.
 *
 * Threads are children of the main process (CLONE_PARENT), invisible to its own wait(). One that ended by itself is
 * only reaped. One that exited without that called exit: the program ends with its status. One that a signal killed
 * takes the program with it, by the same signal. When the main process dies, the kernel kills the others.
 */
#ifndef PTW_WARDEN_H
#define PTW_WARDEN_H

#include "sys.h"

/* Begin to watch, if nobody does. For the main process. 0 or an error number. */
PTW_HIDDEN int ptw_warden_start(void);

/* In a fork child: nobody watches. */
PTW_HIDDEN void ptw_warden_forget(void);

/* There is a child to wait for. From any process. */
PTW_HIDDEN void ptw_warden_notice(void);

#endif
