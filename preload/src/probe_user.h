/* SPDX-License-Identifier: MIT */
/*
 * The user's handlers: called so that one that crashes costs its probe, not the program.
 *
 * SIGSEGV, SIGBUS, SIGFPE and SIGILL are caught while there are such handlers; what comes from the program itself goes
 * where the program wants it. Installed once, before main; nothing is allocated in a hit.
 */
#ifndef PTW_PROBE_USER_H
#define PTW_PROBE_USER_H

#include "../ptweave/preload/include/ptweave/probe.h"
#include "probe_format.h"
#include "sys.h"

#include <stdbool.h>
#include <ucontext.h>

/* Call it. False: it crashed. */
PTW_HIDDEN bool ptw_probe_guarded(void (*function)(void *), struct ptweave_hit *hit);

/* A handler of this probe has crashed: it is switched off, and that is told. */
PTW_HIDDEN void ptw_probe_crashed(uint32_t hit);

/* Load the functions a plan names. False: one is missing, and nothing is to be patched. */
PTW_HIDDEN bool ptw_probe_user_begin(const struct ptw_plan_hit *hits, const struct ptw_plan_function *functions,
				     uint32_t count);

/* The program's sigaction, where threads are threads: remembered, as the kernel has our handler. False: it is the
 * kernel's business. */
PTW_HIDDEN bool ptw_probe_sigaction(int signal, const struct sigaction *action, struct sigaction *old);

/* A fault in a handler: the context goes on behind the call. False: it is not one. */
PTW_HIDDEN bool ptw_probe_fault(int signal, ucontext_t *context);

#endif
