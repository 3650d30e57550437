/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the program's own fork. The child gets a copy of the memory as it is then: it is a program in process
 * mode of its own, with one thread. The parent waits for the copy; its other threads go on meanwhile, as they do beside
 * any fork.
 *
 * The main process is the parent of every child. Another thread's process makes a process in between, which makes the
 * child and ends: the child then is its nearest subreaper's, and for that moment the main process is one.
 */
#ifndef PTW_FORK_H
#define PTW_FORK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Before process mode begins: all handlers of pthread_atfork that were registered have room here. */
bool ptw_fork_knows_all(void) __attribute__((visibility("hidden")));

pid_t ptw_program_fork(void) __attribute__((visibility("hidden")));

/* The same without the program's fork handlers: _Fork. */
pid_t ptw_program_fork_bare(void) __attribute__((visibility("hidden")));

/* Call `function` with its frames from `stack` (a multiple of 16) downwards. */
long ptw_call_on(long (*function)(void *), void *argument, uint64_t stack) __attribute__((visibility("hidden")));

/* The same, from one that is made for it: a private mapping. The result of `function`; -ENOMEM, too, where there is no room
 * for it. */
long ptw_fork_on_stack(long (*function)(void *), void *argument) __attribute__((visibility("hidden")));

/* For threads other than main: call `function` in a process in between, on a stack of its own: what children it makes
 * are the main process's. Its result, which must not be 0, is returned. In a child that leaves by its return, 0. */
long ptw_fork_in_between(long (*function)(void *), void *argument) __attribute__((visibility("hidden")));

/* The main process adopts what processes in between leave behind: from here on, for this thread, or no more. All signals
 * are blocked. */
void ptw_fork_adopts(bool yes) __attribute__((visibility("hidden")));

/* One line, and the child's end. */
void ptw_fork_failed(long error) __attribute__((visibility("hidden"), noreturn));

#endif
