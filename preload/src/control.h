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
	PTW_REQUEST_IDS = 8,
	PTW_REQUEST_NAME = 16,
	PTW_REQUEST_NOW = 32, /* whatever it is, it cannot wait for the end of a nap */
	PTW_REQUEST_PAGES = 64, /* close what was taken away: revoke.h */
	PTW_REQUEST_SIGNALS = 256, /* it was handed one that it blocks by now */
	PTW_REQUEST_VIEW = 128, /* private copies of pages that are passed through by now */
};

#define PTW_RESTORER 0x04000000ull /* SA_RESTORER: the way back is given */
PTW_HIDDEN void ptw_return_from_signal(void);

/* The kernel's struct sigaction. */
struct ptw_action {
	uint64_t handler;
	uint64_t flags;
	uint64_t restorer;
	uint64_t mask;
};

/* A function, and not what SIG_DFL and SIG_IGN stand for. */
static inline bool ptw_has_handler(const struct ptw_action *action)
{
	return action->handler != (uint64_t)SIG_DFL && action->handler != (uint64_t)SIG_IGN;
}

/* Listen. Inherited by the processes of new threads. */
PTW_HIDDEN int ptw_control_init(void);

/* 0, or ESRCH when the thread has ended. One that naps (nap.h) is not woken for what can wait. */
PTW_HIDDEN int ptw_control_request(struct ptw_slot *slot, uint32_t request);

/* Install `handler` with our own way back from it; flags as given. */
PTW_HIDDEN int ptw_install(int signal, uint64_t handler, uint64_t flags, uint64_t mask);

/* Do what this thread was asked to; by itself, before it first lets signals through. */
PTW_HIDDEN void ptw_control_serve(void);

/* pthread_cancel and pthread_kill. */
PTW_HIDDEN int ptw_control_cancel(pthread_t thread);
PTW_HIDDEN int ptw_control_kill(pthread_t thread, int signal);

#endif
