/* SPDX-License-Identifier: MIT */
/*
 * Process mode: memory that all processes share where it lies, without being tracked. What is mapped and writable when
 * process mode begins is (segments.h says what), and what the program maps later at addresses that it chose, or commits
 * of what it had reserved: it is its own alias, and who reads or writes there is in no log.
 *
 * The table of it is struct ptw_segments; no code of the program's runs under its lock. What one process maps, others
 * have when they first use it (fault.h).
 */
#ifndef PTW_UNTRACKED_H
#define PTW_UNTRACKED_H

#include "sys.h"

#include <stdbool.h>
#include <stdint.h>

/* What is mapped there is shared, with what it holds; it was not yet. 0 or negative errno. */
PTW_HIDDEN int ptw_untracked_share(uint64_t start, uint64_t end);

/* Say that something could not be shared, unless `error` is 0. */
PTW_HIDDEN void ptw_untracked_tell(int error);

/* In a fork child whose region was replaced: map everything from there. 0 or negative errno. */
PTW_HIDDEN int ptw_untracked_remap(void);

/* Does the address lie in such memory? Signal-safe. */
PTW_HIDDEN bool ptw_untracked_has(uint64_t address);

/* This process has it no longer, or not yet: map it. False: there is none, or it is here. Signal-safe. */
PTW_HIDDEN bool ptw_untracked_admit(uint64_t address);

/* Map everything that is not here. Signal-safe. */
PTW_HIDDEN void ptw_untracked_catch_up(void);

/* The page is there, and this process has reserved the place: it gave it up once, and another took it back. Signal-safe. */
PTW_HIDDEN bool ptw_untracked_again(uint64_t address);

/* What of a range of pages is shared, whatever this process may do with it, into memory of zeros. */
PTW_HIDDEN void ptw_untracked_read(uint64_t start, char *to, uint64_t size);

/* What of a range of pages is shared becomes zeros, for all. These four are not for signal handlers. */
PTW_HIDDEN void ptw_untracked_empty(uint64_t start, uint64_t end);

/* And this process has mapped something else there. */
PTW_HIDDEN void ptw_untracked_replaced(uint64_t start, uint64_t end);

/* What was just mapped there to be written is shared, as zeros; what cannot be is told, and left. */
PTW_HIDDEN void ptw_untracked_share_fresh(uint64_t start, uint64_t end);

/* What may be written there by now, and is this process's own, is shared as it is. */
PTW_HIDDEN void ptw_untracked_share_own(uint64_t start, uint64_t end);

#endif
