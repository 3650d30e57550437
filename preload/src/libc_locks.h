/* SPDX-License-Identifier: MIT */
/*
 * The C library's own locks (stdio, atexit, the environment, locales …), and what it does once, wait on process-private
 * futexes. In process mode its data is shared between processes, so those waits must be shared ones.
 */
#ifndef PTW_LIBC_LOCKS_H
#define PTW_LIBC_LOCKS_H

#include "sys.h"

#include <stdbool.h>

/* 0, or negative errno (-ENOSYS: this C library's code is not as we know it): its locks cannot be shared. `*ret_all` is
 * false where that is so of what it does once, or of its read-write locks (locales, translations): two threads that need
 * one of those at the same moment may wait for ever. */
PTW_HIDDEN int ptw_libc_locks_share(bool *ret_all);

#endif
