/* SPDX-License-Identifier: MIT */
/*
 * The C library's own locks (stdio, atexit, the environment, locales …), and what it does once, wait on process-private futexes. In process mode its
 * data is shared between processes, so those waits must be shared ones.
 */
#ifndef PTW_LIBC_LOCKS_H
#define PTW_LIBC_LOCKS_H

#include "sys.h"

#include <stdbool.h>

/* 0, or -ENOSYS: this C library's code is not as we know it, and its locks cannot be shared. */
PTW_HIDDEN int ptw_libc_locks_share(void);

/* The same for what it does once, and for its locks of locales and translations. False: not all of that was found; two
 * threads that need one of those at the same moment may wait for ever. */
PTW_HIDDEN bool ptw_libc_others_share(void);

#endif
