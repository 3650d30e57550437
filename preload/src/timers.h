/* SPDX-License-Identifier: MIT */
/*
 * Process mode: timers belong to the program: whichever thread makes one, it is the main process's (errand.h), and all
 * threads may use it. What a timer signals reaches the main process; a timer for one other thread signals the herald,
 * which passes it on; a timer that notifies by a thread has it made by a thread of ours, as the C library does it.
 */
#ifndef PTW_TIMERS_H
#define PTW_TIMERS_H

#include <signal.h>
#include <stdbool.h>

/* The herald got a signal: is it from a timer that it passes on? */
bool ptw_timers_fired(int signal, const siginfo_t *info) __attribute__((visibility("hidden")));

/* In a fork child: it has no timers. */
void ptw_timers_forget(void) __attribute__((visibility("hidden")));

#endif
