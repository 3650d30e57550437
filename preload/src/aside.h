/* SPDX-License-Identifier: MIT */
/*
 * Closing pages takes a stack that is not closed with them.
 *
 * A thread's own stack always is open to it. Others that it runs on (coroutines': makecontext, or by hand) lie in memory
 * that is tracked as any other: between the call that closes a page and the note of it, nothing may be on that page, and
 * what is written to a private copy after it was committed is lost. So that is done on a stack of ours. Afterwards the
 * pages next to where the thread is are opened again: the C library has the kernel read and write frames of its own, and
 * the kernel cannot fault. Signal-safe.
 */
#ifndef PTW_ASIDE_H
#define PTW_ASIDE_H

#include "pages.h"
#include "slots.h"

/* The caller is on a stack that may be closed. */
static inline bool ptw_stack_is_tracked(void)
{
	const uint64_t here = (uint64_t)__builtin_frame_address(0);
	return ptw_tracking && here - ptw_slot()->stack >= ptw_slot()->stack_size && ptw_page_of(here) != PTW_PAGE_NONE;
}

/* Do it there. What interrupts it, and comes here too, is on that stack already. */
PTW_HIDDEN void ptw_aside(void (*work)(void));
PTW_HIDDEN void ptw_aside_with(long (*work)(void *argument), void *argument);

/* Open what the thread stands on, and some pages below. */
PTW_HIDDEN void ptw_aside_back(void);

/* In a function `work` that may close pages: do it there, and return, if this is on a stack that may be closed. */
#define PTW_ASIDE(work)                                       \
	do {                                                  \
		if (__builtin_expect(ptw_stack_is_tracked(), 0)) { \
			ptw_aside(work);                      \
			ptw_aside_back();                     \
			return;                               \
		}                                             \
	} while (0)

#endif
