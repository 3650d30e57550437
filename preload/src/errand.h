/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what the kernel keeps for a process and the program has once is the main process's: timers, children.
 * An errand is a call made there for another thread, by the herald, a thread of the main process; the caller waits for
 * its answer. The main thread, and a program without other threads, makes the call itself.
 *
 * Each slot has one errand. Its data lies in memory that is never closed; pointers of the call point into it. Signals
 * are blocked between begin and end, so handlers may have errands, too. Signal-safe.
 */
#ifndef PTW_ERRAND_H
#define PTW_ERRAND_H

#include "slots.h"

#include <stdbool.h>

enum { PTW_ERRAND_DATA = 448 };

struct ptw_errand {
	uint32_t state; /* futex */
	uint32_t unused;
	long number; /* of the system call */
	long argument[5];
	long result;
	uint64_t mask; /* of its owner */
	_Alignas(16) unsigned char data[PTW_ERRAND_DATA];
};

#define ptw_errands ((struct ptw_errand *)PTW_META_ERRANDS)
_Static_assert(sizeof(struct ptw_errand) * PTW_SLOTS <= 1 << 20, "errands fit their place");

enum { PTW_ERRAND_WATCH = -1 }; /* no system call: watch for children, see children.c */

/* This thread's errand, its data zeroed. */
PTW_HIDDEN struct ptw_errand *ptw_errand_begin(void);

/* Make the call; its result, negative errno. */
PTW_HIDDEN long ptw_errand_run(struct ptw_errand *errand, long number, long a, long b, long c, long d, long e);

PTW_HIDDEN void ptw_errand_end(struct ptw_errand *errand);

/* The herald: do what is asked. */
PTW_HIDDEN void ptw_errands_serve(void);

/* In a fork child. */
PTW_HIDDEN void ptw_errands_forget(void);

#endif
