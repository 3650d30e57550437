/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The process's own file of state: who it is, and a page for each thread. See format.h. */
#ifndef PTSOFT_PROCESS_H
#define PTSOFT_PROCESS_H

#include "format.h"
#include "output.h"

/* Choose the process's file names and make its state file. When that fails everything is counted as lost, where
   there is anything left to count in. `parent_tid` only for a fork or clone. */
void process_begin(enum ptsoft_began began, Int parent_tid);

/* The calling thread is about to fork. */
void process_forking(void);

/* It will leave at once: the child goes on in its place. Comes before process_forking; holds for one fork. */
void process_leaving(void);

/* The fork was made, or failed. */
void process_fork_done(void);

/* A fork child lets go of what it shares with its parent, and begins again as itself. */
void process_forked(void);

/* How the process ends (an exec that failed takes it back). */
void process_ending(enum ptsoft_ended how);

/* Before an exec that is followed: the descriptor of the state file, which the next program is to find open; -1: none. */
Int process_pass_on(void);

/* The exec failed. */
void process_exec_failed(void);

/* After process_begin: the descriptor that came along (CLIENT_ENV_STATE). A program that has no file says so in there:
   one of which nothing more is heard did not begin. */
void process_arrived(const HChar *descriptor);

/* The page with the process's counters; private memory when there is no file. Never NULL. */
struct ptsoft_process *process_state(void);

/* Make the page of stream `stream` in `window`. NULL: there is no room. */
struct ptsoft_thread *process_thread_page(struct window *window, UInt stream);

/* Map a free buffer of P.buf in `window`, and its number. False: there is no room. */
Bool process_buffer(struct window *window, uint64_t *number);

/* The buffer can be used again. */
void process_buffer_free(struct window *window, ULong number);

/* Name of one of the process's files: `<pid>.<n>` and the suffix, with the stream's number if it is not -1. */
void process_file_name(HChar name[OUTPUT_NAME], Int stream, const HChar *suffix);

/* Make the user the owner of the process's files, as far as that may be done. */
void process_give(UInt user);

/* An exec is being made. */
static inline Bool process_is_execing(void)
{
   const UInt ended = process_state()->ended;

   return ended == PTSOFT_EXECING || ended == PTSOFT_UNRECORDED;
}

/* Now. */
static inline ULong time_stamp(void)
{
   UInt low, high;

   __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
   return (ULong)high << 32 | low;
}

#endif
