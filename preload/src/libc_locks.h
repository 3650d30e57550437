/* SPDX-License-Identifier: MIT */
/*
 * The C library's own locks (stdio, atexit, the environment …) wait on process-private futexes. In process mode its
 * data is shared between processes, so those waits must be shared ones.
 */
#ifndef PTW_LIBC_LOCKS_H
#define PTW_LIBC_LOCKS_H

#include "sys.h"

/* 0, or -ENOSYS: this C library's code is not as we know it, and its locks cannot be shared. */
PTW_HIDDEN int ptw_libc_locks_share(void);

#endif
