/* SPDX-License-Identifier: MIT */
/*
 * Process mode: running the program's signal handlers. The kernel calls ptw_on_signal in every process; it looks up what
 * the program wants of the signal, publishes which signals are blocked meanwhile, and calls the handler, on the
 * program's alternate stack if it asks for that. Signal-safe; errno is the handler's business, as natively.
 */
#ifndef PTW_HANDLERS_H
#define PTW_HANDLERS_H

#include "control.h"

#include <ucontext.h>

/* The handler in the kernel. */
PTW_HIDDEN void ptw_on_signal(int signal, siginfo_t *info, void *context);

/* Do what `action` says. Returns when the handler does; by default: when the kernel will end the process. */
PTW_HIDDEN void ptw_handler_run(const struct ptw_action *action, int signal, siginfo_t *info, ucontext_t *context);

/* The same, of who came with everything blocked: a handler runs with what it is to have blocked. */
PTW_HIDDEN void ptw_handler_run_open(const struct ptw_action *action, int signal, siginfo_t *info, ucontext_t *context);

/* Call `function`, which may not come back, as a handler would be that blocks nothing: for a handler of ours that came with
 * everything blocked, whose frame begins at `frame` (its return address). Returns, if at all, as that handler would. */
PTW_HIDDEN void ptw_handler_call(void (*function)(void), int signal, siginfo_t *info, ucontext_t *context, uint64_t frame);

/* `info` came with a signal, by whatever way: say who sent it as the program knows it. False: it was for the process
 * group, of which every thread gets one; the main process's counts. */
PTW_HIDDEN bool ptw_signal_arrived(siginfo_t *info);

/* Handlers of the program that ran in this thread. A call that a signal of ours ended goes on when this did not change. */
extern PTW_HIDDEN __thread uint64_t ptw_handler_runs __attribute__((tls_model("initial-exec")));

/* Signals this thread blocks from now on, as far as others need to know: what is kept for it and no longer blocked is
 * raised. To be called before the kernel is told. */
PTW_HIDDEN void ptw_mask_publish(uint64_t mask);

/* For a call that blocks another set while it waits: that set, until ptw_mask_back. Returns what is blocked else. */
PTW_HIDDEN uint64_t ptw_mask_swap(const sigset_t *set);
PTW_HIDDEN void ptw_mask_back(uint64_t before);

#endif
