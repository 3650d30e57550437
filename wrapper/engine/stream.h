/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One packet stream and one log of system calls for each thread, written through shared mappings.
 *
 * All functions run under Valgrind's big lock, most on behalf of the running thread. A thread's encoder is found
 * by generated code through a pointer in the thread's shadow registers: Valgrind saves and restores those with
 * signal frames, so it is always the thread's own.
 */
#ifndef PTSOFT_STREAM_H
#define PTSOFT_STREAM_H

#include "format.h"
#include "vg_core.h"

struct stream_options {
   ULong psb_period;   /* bytes */
   Bool compress;      /* compress returns */
   Bool log;           /* count and hash every instruction */
};

void stream_init(struct stream_options options);

/* Where in the guest state generated code finds the pointer to the thread's struct pt_encoder. */
UInt stream_slot(void);

/* Its page; NULL: it has not run. */
struct ptsoft_thread *stream_thread(ThreadId tid);

/* `tid` is about to run the program's code. */
void stream_enter(ThreadId tid);

/* A new thread was created by the running one. */
void stream_created(ThreadId child);

/* A signal is about to be delivered to `tid`; `fault`: by the instruction at its ip, which did not complete. */
void stream_interrupt(ThreadId tid, Bool fault);

/* `tid` makes a system call; it returned. */
void stream_syscall(ThreadId tid, UInt number, const UWord args[6]);
void stream_syscall_done(ThreadId tid, SysRes result);

/* The kernel is asked for a system call on behalf of the running thread, or of that whose guest state is given. */
void stream_syscall_asked(const void *guest_state, UWord number, const UWord args[6]);

/* `tid` ends: its trace ends orderly. */
void stream_end(ThreadId tid);

/* The process ends: end whatever is left. */
void stream_end_all(void);

/* In a fork child: let go of all streams, they are the parent's. */
void stream_forked(void);

/* Called by generated code, with --pt-log=yes: the instruction at `ip` runs. */
void stream_log(struct pt_encoder *encoder, ULong ip, ULong branch);

/* Called by generated code at a far transfer out of the program. */
void stream_far(struct pt_encoder *encoder);

#endif
