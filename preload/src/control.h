/* SPDX-License-Identifier: MIT */
/*
 * Process mode: asking a thread's process to do what only it can. A request is a bit in its slot and a signal that the
 * C library keeps for itself and does not use here (it would tell threads of one process about a changed user).
 *
 * Signal-safe.
 */
#ifndef PTW_CONTROL_H
#define PTW_CONTROL_H

#include "slots.h"

enum {
	PTW_CONTROL_SIGNAL = 33,
	PTW_REQUEST_CANCEL = 1,
	PTW_REQUEST_DISPOSITIONS = 2, /* some signal's action changed */
	PTW_REQUEST_EXEC = 4,
};

/* The kernel's struct sigaction. */
struct ptw_action {
	uint64_t handler;
	uint64_t flags;
	uint64_t restorer;
	uint64_t mask;
};

/* Listen. Inherited by the processes of new threads. */
PTW_HIDDEN int ptw_control_init(void);

/* 0, or ESRCH when the thread has ended. */
PTW_HIDDEN int ptw_control_request(struct ptw_slot *slot, uint32_t request);

/* Install `handler` with our own way back from it; flags as given. */
PTW_HIDDEN int ptw_install(int signal, uint64_t handler, uint64_t flags, uint64_t mask);

/* pthread_cancel and pthread_kill. */
PTW_HIDDEN int ptw_control_cancel(pthread_t thread);
PTW_HIDDEN int ptw_control_kill(pthread_t thread, int signal);

#endif
