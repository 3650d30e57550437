/* SPDX-License-Identifier: MIT */
/*
 * Commits: the bytes of a private copy that differ from its twin are written to the shared page, under the page's lock,
 * and logged; what others committed since is taken over. Signals must be blocked.
 *
 * Two threads that change the same byte without an order between them (a race, or atomics on private copies) are
 * noticed at the commit of the second: its value stays.
 */
#ifndef PTW_COMMIT_H
#define PTW_COMMIT_H

#include "twins.h"

/* The copy's bytes are committed. True: some had changed. `ret_race` (may be NULL): offset of a byte that another
 * thread changed meanwhile, -1 none. */
PTW_HIDDEN bool ptw_commit(struct ptw_copy *copy, int *ret_race);

/* Take over what others committed, if anything; the copy was committed before. */
PTW_HIDDEN void ptw_refresh(struct ptw_copy *copy);

/* The lock of a page's commits. */
PTW_HIDDEN void ptw_page_lock(uint32_t page);
PTW_HIDDEN void ptw_page_unlock(uint32_t page);

/* In a fork child: nobody else is here to hold one. */
PTW_HIDDEN void ptw_page_locks_forget(void);

#endif
