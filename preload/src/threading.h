/* SPDX-License-Identifier: MIT */
/* Process mode's beginning, and the table of operations behind our interposers (real.h: ptw_threading). */
#ifndef PTW_THREADING_H
#define PTW_THREADING_H

#include <stdbool.h>

/* Make this process the first of a program in process mode. For the main thread, before main(). False: it cannot be
 * (a line said why), and threads stay threads. */
bool ptw_threading_begin(void) __attribute__((visibility("hidden")));

#endif
