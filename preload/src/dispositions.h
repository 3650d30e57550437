/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what signals do is one thing for the program, as it is for threads, though the kernel keeps it for each
 * process. The truth is a shared table. In every process the kernel calls our function for each signal that has a
 * handler, and that looks into the table: a new handler holds at once and for all. What the kernel has to know by itself
 * (ignored or not, flags, masks) follows: a change is written to the table and every process is asked to follow. Once
 * there are other threads, the kernel calls us also for signals that would end the program, so that no thread is ended
 * by one that just got a handler.
 *
 * SIGSEGV is ours: the program's action for it is only remembered, and taken for faults that are not of our making. It
 * is never blocked, neither by masks nor during handlers.
 *
 * The kernel knows one alternate stack, ours (fault.h). Handlers that ask for the program's are moved there.
 */
#ifndef PTW_DISPOSITIONS_H
#define PTW_DISPOSITIONS_H

#include "control.h"

struct ptw_dispositions {
	uint32_t lock;
	uint32_t armed;          /* signals that end the program come to us, too */
	uint32_t generation[65]; /* odd while the action changes */
	struct ptw_action action[65];
};

#define ptw_disposition_table ((struct ptw_dispositions *)PTW_META_SIGNALS)
_Static_assert(sizeof(struct ptw_dispositions) <= PTW_META_PROGRAM - PTW_META_SIGNALS, "fits its place");

/* Take over what is set; in the first process. */
PTW_HIDDEN void ptw_dispositions_init(void);

/* There will be other threads. In the main process, before the first. */
PTW_HIDDEN void ptw_dispositions_arm(void);

/* Follow the table. Signal-safe. */
PTW_HIDDEN void ptw_dispositions_apply(void);

/* The program's action now. Signal-safe. */
PTW_HIDDEN struct ptw_action ptw_dispositions_get(int signal);

/* SA_RESETHAND: the first who comes has the handler, and it is the default from then on. */
PTW_HIDDEN struct ptw_action ptw_dispositions_take(int signal);

/* Does the signal do nothing, by its action or by default? */
PTW_HIDDEN bool ptw_dispositions_ignored(int signal);

#endif
