/* SPDX-License-Identifier: MIT */
/*
 * SIGSEGV: faults on tracked pages open them; others are the program's, and get what the program set for them. The
 * handler runs on a stack of its own, with all signals blocked.
 */
#ifndef PTW_FAULT_H
#define PTW_FAULT_H

#include "sys.h"

#include <signal.h>
#include <stdbool.h>

/* Install the handler; inherited by the processes of new threads. */
PTW_HIDDEN void ptw_fault_init(void);

/* Give this thread a stack for signals, once. */
PTW_HIDDEN void ptw_fault_stack(void);

/* Is `address` on it? */
PTW_HIDDEN bool ptw_fault_stack_has(uint64_t address);

/* A stack for signals that come while the one that `frame` lies on must stay as it is. `nested`: the other half may be
 * kept like that already. */
PTW_HIDDEN stack_t ptw_fault_stack_beside(uint64_t frame, bool nested);

/* One line, and the end: process mode cannot go on. */
PTW_HIDDEN void ptw_fault_fatal(const char *what, long error) __attribute__((noreturn));

#endif
