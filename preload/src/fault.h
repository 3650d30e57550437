/* SPDX-License-Identifier: MIT */
/*
 * SIGSEGV: faults on tracked pages open them; others are the program's, and get what the program set for them. The
 * handler runs on a stack of its own, with all signals blocked.
 */
#ifndef PTW_FAULT_H
#define PTW_FAULT_H

#include "sys.h"

/* Install the handler; inherited by the processes of new threads. */
PTW_HIDDEN void ptw_fault_init(void);

/* Give this thread a stack for signals, once. */
PTW_HIDDEN void ptw_fault_stack(void);

/* One line, and the end: process mode cannot go on. */
PTW_HIDDEN void ptw_fault_fatal(const char *what, long error) __attribute__((noreturn));

#endif
