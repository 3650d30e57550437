/* SPDX-License-Identifier: MIT */
/*
 * The process as the supervisor knows it: its connection, its lists, its threads' handshakes.
 *
 * One connection and one pipe a process, made in the constructor (or in a fork child) while there is one thread, and
 * moved to high descriptor numbers at once: so the program's own numbers never change, however many threads start.
 * Threads shake hands over that connection one after the other, with all signals blocked.
 */
#ifndef PTW_PROCESS_H
#define PTW_PROCESS_H

#include "handshake.h"
#include "log.h"
#include "shared_lock.h"
#include "slots.h"

struct ptw_process {
	struct ptw_peer peer;
	struct ptw_lists *lists;
	struct ptw_object *objects;
	uint64_t *serials; /* given to threads and forks; in process mode shared, as is the lock */
	uint32_t *lock;    /* a handshake is under way */
	uint32_t traced;   /* as *ptw_live, but not wiped in fork children */
};

extern PTW_HIDDEN struct ptw_process ptw_process;

static inline uint64_t ptw_next_serial(void)
{
	return __atomic_add_fetch(ptw_process.serials, 1, __ATOMIC_RELAXED);
}

/* Make this thread known: claim a list, shake hands. `serial` names it. Afterwards it is TRACED or UNTRACED. */
PTW_HIDDEN void ptw_thread_attach(uint64_t serial, uint64_t start_routine);

/* The same in two halves, for a thread that has something else to do until the answer is there: all signals must be
 * blocked, and nothing may be logged in between; when there will be an answer, other threads' handshakes wait. */
PTW_HIDDEN void ptw_thread_greet(uint64_t serial, uint64_t start_routine);
PTW_HIDDEN void ptw_thread_greeted(void);

/* Log how this thread began: `serial` is that of its create or fork (0: none known), `parent` the tid it was made by. */
PTW_HIDDEN void ptw_log_start(const struct ptw_frame *caller, uint64_t object, uint64_t serial, uint32_t parent);

/* In the process of a new thread (process mode): what fork children do not inherit. */
PTW_HIDDEN void ptw_process_resume(void);

/* Log its end and hand its last list over. */
PTW_HIDDEN void ptw_thread_end(const struct ptw_frame *caller);

/* Have ptw_thread_finished called when this thread ends, after its other destructors. */
PTW_HIDDEN void ptw_thread_watch_end(void);

/* --- thread.c --- */

PTW_HIDDEN void ptw_threads_init(void);

/* Where threads are threads: how many bytes the thread's stack is larger than was asked for; 0 where that is not known. */
PTW_HIDDEN size_t ptw_thread_extra(pthread_t thread);

/* Process mode begins: threads are made known to all processes. */
PTW_HIDDEN void ptw_threads_share(void);

/* In a fork child: the threads of the parent are not here. */
PTW_HIDDEN void ptw_threads_forget(void);

/* What a new thread will run: when that is known here, its handshake begins. Then as ptw_thread_greet. */
PTW_HIDDEN void ptw_thread_greet_early(void *(*routine)(void *), void *argument);

PTW_HIDDEN void ptw_thread_finished(const struct ptw_frame *caller);

#endif
