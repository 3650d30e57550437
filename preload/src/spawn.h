/* SPDX-License-Identifier: MIT */
/*
 * Process mode: making a thread that is a process.
 *
 * glibc makes a thread on a stack in shared memory: it gets thread-local storage and a thread control block of its own,
 * a pthread_t that is unique in the program, everything a thread has. Where it would clone the thread a process is cloned
 * (direct.h). Where that cannot be done, the thread clones itself without CLONE_VM (descriptors, working directory and
 * semaphore undo lists stay shared) and leaves at once; the clone goes on in its place, with its tid in the control
 * block. Either way nothing of glibc's thread set-up is done by us.
 */
#ifndef PTW_SPAWN_H
#define PTW_SPAWN_H

#include "slots.h"

/* Look at this glibc's thread control block. 0, or -ENOSYS when it is not as we know it. */
PTW_HIDDEN int ptw_spawn_init(void);

/* Make the thread of `slot`, which has stack, routine, argument, mask and creator. All signals must be blocked.
 * `handle` is set in the slot before the thread runs. Returns an error number. */
PTW_HIDDEN int ptw_spawn(struct ptw_slot *slot);

/* Give back what glibc allocated for a thread that is gone. */
PTW_HIDDEN void ptw_spawn_forget(struct ptw_slot *slot);

/* Take a thread out of glibc's list, right after its creation, under the create lock. */
PTW_HIDDEN void ptw_spawn_unlink(pthread_t thread);

/* life.c: the new process, on its own stack, all signals blocked. */
PTW_HIDDEN void *ptw_thread_begin(struct ptw_slot *slot);

PTW_HIDDEN uint32_t *ptw_tcb_tid(pthread_t thread);

#endif
