/* SPDX-License-Identifier: MIT */
/*
 * Process mode: system calls that the executable makes by instructions of its own. The kernel would find closed pages
 * and say EFAULT; so it is asked to hand such calls to us (syscall user dispatch, Linux 5.11), and they are made as those
 * of syscall() are. Only when the executable has such instructions: each of its calls costs a signal then, and every
 * other call of the program some nanoseconds. Calls that must be made where they stand (clone, vfork, exit) are.
 *
 * Not for libraries, whose places lie between those of the C library and ours, and not under the soft engine, which
 * makes all calls in a place of its own: what is found there is told (notice.h).
 */
#ifndef PTW_INSTRUCTIONS_H
#define PTW_INSTRUCTIONS_H

#include "sys.h"
#include "watch.h"

#include <signal.h>
#include <stdbool.h>

/* Calls are handed to us in this program; SIGSYS must not be blocked then. */
extern PTW_HIDDEN bool ptw_instructions_on;

/* Signals that must get through whatever the program blocks. */
static inline uint64_t ptw_unblockable(void)
{
	return 1ull << (SIGSEGV - 1) | (ptw_instructions_on ? 1ull << (SIGSYS - 1) : 0) |
	       (ptw_watching ? 1ull << (SIGTRAP - 1) : 0);
}

/* 0: calls are made as they stand. In memory of this process's own: the kernel looks at it at each call. */
extern PTW_HIDDEN uint8_t ptw_instructions_gate;

/* In the first process: look for them. */
PTW_HIDDEN void ptw_instructions_init(void);

/* In every process, whose thread is not handed any yet. */
PTW_HIDDEN void ptw_instructions_begin(void);

/* A boundary: after a call that was made where it stood they are handed to us again. */
static inline void ptw_instructions_again(void)
{
	if (__builtin_expect(ptw_instructions_on, 0))
		__atomic_store_n(&ptw_instructions_gate, 1, __ATOMIC_RELAXED);
}

#endif
