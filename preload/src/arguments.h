/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what the kernel shows as the program's arguments and environment (/proc/PID/cmdline, ps). It shows
 * anonymous memory only, and the program's become shared memory; so it is given copies. What the program writes over its
 * arguments later is not shown. Where the kernel takes none (no CONFIG_CHECKPOINT_RESTORE) it shows nothing.
 */
#ifndef PTW_ARGUMENTS_H
#define PTW_ARGUMENTS_H

#include "sys.h"

/* In the first process, before the kernel's stack is shared. */
PTW_HIDDEN void ptw_arguments_keep(void);

#endif
