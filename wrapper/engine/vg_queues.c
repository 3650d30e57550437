/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's emptying of a thread's queue of signals (-Wl,--wrap=…). It blocks all signals for that and
 * lets them come again: two system calls. Valgrind empties the queue of each thread there can be when a program begins, and
 * again in each fork's child: with 1024 of them two thousand calls, which a recorder of system calls sees one by one, and
 * milliseconds in which a child that is killed at once has not begun. A thread that never was has no queue.
 */
#include "queues.h"

enum { BITS = 8 };

static UChar been[PT_THREADS / BITS];

void queues_thread(ThreadId tid)
{
   if (tid < PT_THREADS)
      been[tid / BITS] |= (UChar)(1u << tid % BITS);
}

extern void __real_vgPlain_clear_out_queued_signals(ThreadId tid, vki_sigset_t *before);
extern void __wrap_vgPlain_clear_out_queued_signals(ThreadId tid, vki_sigset_t *before);

void __wrap_vgPlain_clear_out_queued_signals(ThreadId tid, vki_sigset_t *before)
{
   if (tid >= PT_THREADS || been[tid / BITS] & 1u << tid % BITS)
      __real_vgPlain_clear_out_queued_signals(tid, before);
}
