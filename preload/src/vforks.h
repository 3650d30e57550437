/* SPDX-License-Identifier: MIT */
/*
 * Process mode: vfork. The child has the memory of the thread that made it, libtthread's with it, and is a process of its
 * own to the kernel: what it says of signals, ids or limits is said of itself. So where that is remembered, or is done
 * by other threads, the child goes by the kernel alone (ptw_is_apart).
 *
 * The main process is the parent, as of every child (fork.h): a thread other than main has it made by a process in
 * between. That one and the child have the thread's memory and its stack; the former never writes to the stack, has no
 * frame on it, and ends when the child has called exec or ended. The child then is the main process's.
 *
 * Of children made with the bare system call nothing is known here, but that they do not run as the thread of the slot.
 */
#ifndef PTW_VFORKS_H
#define PTW_VFORKS_H

#include "slots.h"

/* Children of vfork that are between their making and their exec, of this thread, each inside the one before. */
extern PTW_HIDDEN __thread uint32_t ptw_vforked __attribute__((tls_model("initial-exec")));

/* Whoever runs this has a process of its own, and the program's memory. Cheap. */
static inline bool ptw_is_apart(void) { return ptw_vforked != 0 && !ptw_slot_runs(); }

/* Whose state is kept here: a thread of a program in process mode. */
static inline bool ptw_is_kept(void) { return ptw_process_mode && !ptw_is_apart(); }

#endif
