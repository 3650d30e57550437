/* SPDX-License-Identifier: MIT */
/*
 * Process mode: descriptors it cannot do without: that of the memory all threads share, and those of mapped files. They
 * are in the program's own table, so a program that closes all it does not know (closefrom, close_range, a loop, as
 * daemons do) would take them away: the next fork could not copy the memory. Here they are kept from it: to close one
 * fails with EBADF, as for a number that is not open; a range is closed around them; nothing is duplicated over one.
 *
 * Numbers beyond the first 65536 are not kept. Any thread, signal-safe.
 */
#ifndef PTW_KEPT_FILES_H
#define PTW_KEPT_FILES_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

enum { PTW_KEPT_FILES = 65536 };

PTW_HIDDEN void ptw_kept_add(int fd);

/* Before it is closed. */
PTW_HIDDEN void ptw_kept_drop(int fd);

PTW_HIDDEN bool ptw_kept_has(int fd);

/* close_range without those. `close_part` closes a part of it as the system call does: a result or negative errno. */
PTW_HIDDEN long ptw_kept_close_range(unsigned first, unsigned last, unsigned flags,
				     long (*close_part)(unsigned first, unsigned last, unsigned flags));

/* The system call: for the above. */
PTW_HIDDEN long ptw_close_part(unsigned first, unsigned last, unsigned flags);

#endif
