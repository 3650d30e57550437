/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what signals do is one thing for the program, as it is for threads, though the kernel keeps it for each
 * process. A change is written to a shared table and every process is asked to follow.
 *
 * SIGSEGV is ours: the program's action for it is only remembered, and taken for faults that are not of our making. It
 * is never blocked, neither by masks nor during handlers. The program's alternate signal stacks are remembered and not
 * used: handlers that ask for one run on ours.
 */
#ifndef PTW_DISPOSITIONS_H
#define PTW_DISPOSITIONS_H

#include "control.h"

struct ptw_dispositions {
	uint64_t generation;
	uint32_t lock;
	uint32_t changed[65];
	struct ptw_action action[65];
};

#define ptw_disposition_table ((struct ptw_dispositions *)PTW_META_SIGNALS)

/* Remember what SIGSEGV was; in the first process. */
PTW_HIDDEN void ptw_dispositions_init(void);

/* Follow the table. Signal-safe. */
PTW_HIDDEN void ptw_dispositions_apply(void);

/* The program's action for SIGSEGV. */
static inline struct ptw_action *ptw_fault_action(void) { return &ptw_disposition_table->action[SIGSEGV]; }

#endif
