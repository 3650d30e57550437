/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the program's own fork. The child gets a copy of the memory as it is then: it is a program in process
 * mode of its own, with one thread. The parent waits for the copy; its other threads go on meanwhile, as they do beside
 * any fork.
 */
#ifndef PTW_FORK_H
#define PTW_FORK_H

#include <sys/types.h>

pid_t ptw_program_fork(void) __attribute__((visibility("hidden")));

/* One line, and the child's end. */
void ptw_fork_failed(long error) __attribute__((visibility("hidden"), noreturn));

#endif
