/* SPDX-License-Identifier: MIT */
/*
 * Process mode: glibc's pthread_create with a process where it would make a thread. The kernel is asked to hand the C
 * library's system calls to us while it runs (syscall user dispatch, Linux 5.11); where it wants to clone a thread we
 * clone a process, on the stack and with the thread-local storage it has prepared, that goes on where the thread would.
 * So everything about the thread is glibc's, and no thread has to be made first to be left behind.
 *
 * Where it is not available (older kernels and C libraries, software engines, a C library told not to use rseq) nothing
 * is done, and spawn.c has another way.
 */
#ifndef PTW_DIRECT_H
#define PTW_DIRECT_H

#include "slots.h"

/* In the first process, its only thread: find out whether it can be done. */
PTW_HIDDEN void ptw_direct_init(void);

/* Make the thread of `slot` as GLIBC(pthread_create) does; `routine` is given the slot. All signals but faults are
 * blocked, before and after. Sets the slot's handle and open_from before the process runs. An error number; ENOSYS:
 * nothing was done. */
PTW_HIDDEN int ptw_direct_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*routine)(void *),
				 struct ptw_slot *slot);

/* In the new process, before anything else of ours. */
PTW_HIDDEN void ptw_direct_begun(struct ptw_slot *slot);

#endif
