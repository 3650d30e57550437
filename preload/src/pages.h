/* SPDX-License-Identifier: MIT */
/*
 * Process mode: which pages this process may touch, and what that says about its thread.
 *
 * A page begins closed in every process. The first read and the first write of a page fault; the fault opens it (with
 * its successors, when accesses are sequential: a window) and is logged. What closes a page again is the kind of
 * tracking: with `held` the page stays open until another thread's access conflicts and this one reaches its next
 * boundary (held.c); with `exact` everything closes at every boundary (exact.c). The own stack is always open, and so is
 * the thread-local storage of every thread, to everybody.
 *
 * States belong to one process and its one thread. Opening is signal-safe.
 */
#ifndef PTW_PAGES_H
#define PTW_PAGES_H

#include "slots.h"
#include "unwind.h"

#include <stddef.h>

enum ptw_page_state {
	PTW_CLOSED = 0,
	PTW_READ,
	PTW_WRITE,
	PTW_ALWAYS, /* not tracked */
};

enum { PTW_WINDOW_MAX = 256 };

#define ptw_page_states ((uint8_t *)PTW_OWN_STATES)

/* Accesses are being tracked in this process. */
extern PTW_HIDDEN bool ptw_tracking;

/* Begin in the first process. */
PTW_HIDDEN void ptw_pages_start(void);

/* Begin in a new thread's process: everything is closed but its stack. */
PTW_HIDDEN void ptw_pages_begin(struct ptw_slot *slot);

/* The thread ends: a last boundary. */
PTW_HIDDEN void ptw_pages_end(void);

/* A thunk ends. */
PTW_HIDDEN void ptw_pages_boundary(void);

/* The same around locks, so that what can be done outside is not done while others wait: before the lock is asked for,
 * when it was got, and before it is given up. */
PTW_HIDDEN void ptw_pages_prepare(void);
PTW_HIDDEN void ptw_pages_acquired(void);
PTW_HIDDEN void ptw_pages_release(void);

/* Open the stack of a thread that is being made, for as long as it is made in this process. */
PTW_HIDDEN void ptw_pages_lend(struct ptw_slot *slot);
PTW_HIDDEN void ptw_pages_lent(struct ptw_slot *slot);

/* Number and address of a page; PTW_PAGE_NONE when it is not tracked. */
PTW_HIDDEN uint32_t ptw_page_of(uint64_t address);
PTW_HIDDEN uint64_t ptw_page_address(uint32_t page);

/* A fault on `address` by the instruction at `frame`. False: it is not of our making. */
PTW_HIDDEN bool ptw_pages_fault(uint64_t address, bool write, const struct ptw_frame *frame);

/* Open [start, start + size) as if it had been accessed: for system calls. */
PTW_HIDDEN void ptw_touch_slow(uint64_t start, uint64_t size, bool write, const struct ptw_frame *frame);

/* The program runs code on a page that is not open. False: it may not. */
PTW_HIDDEN bool ptw_pages_execute(uint64_t address);

/* Once, while there is one thread: whether the program has stacks that may be executed. */
PTW_HIDDEN void ptw_pages_init_stacks(void);

/* The program's own wish (mprotect, munmap), PROT_ bits or what limits.h has, for tracked pages: what it may not do faults as
 * it would natively, in any thread. Pages must be whole. */
PTW_HIDDEN void ptw_pages_limit(uint64_t start, uint64_t size, int protection);

/* Close those of the pages that are open, for revoke.h. Signals must be blocked. */
PTW_HIDDEN void ptw_pages_revoked(uint32_t page, uint32_t pages);

/* The pages are not open any more: something else was mapped there. */
PTW_HIDDEN void ptw_pages_forget(uint32_t page, uint32_t count);

/* Set protection and state of `count` pages that lie beside each other. */
PTW_HIDDEN void ptw_pages_set(uint32_t page, uint32_t count, enum ptw_page_state state);

/* What this process has just mapped anew: nothing of it is open. */
PTW_HIDDEN void ptw_pages_close_new(uint32_t page, uint32_t count);

/* Close pages (any order, duplicates allowed), in as few calls as possible. The array is sorted. */
PTW_HIDDEN void ptw_pages_close(uint32_t *pages, uint32_t count);

#endif
