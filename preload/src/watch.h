/* SPDX-License-Identifier: MIT */
/*
 * Watchpoints: whoever touches a variable is logged, with the value before and after (docs/watchpoints.md).
 *
 * The processor's debug registers (perf_event_open, PERF_TYPE_BREAKPOINT) raise SIGTRAP in the thread behind the
 * instruction that touched it; under the soft engine, the engine does. Opened once in a process image, before main;
 * threads, processes that are threads and fork children inherit them, exec ends them. The events' descriptors go to the
 * supervisor in the handshake, which reads from them how many hits there were.
 *
 * What is in a library that comes later has its events from the beginning, too, which stand still: when the library is
 * there, the kernel changes where they watch, in all who inherited them. Their descriptors stay open here for that.
 *
 * The handler takes no lock and allocates nothing, reads memory in ways that no watchpoint and no page protection sees,
 * and leaves errno alone. A SIGTRAP that is not ours is the program's. While there are watchpoints the program cannot
 * block SIGTRAP.
 */
#ifndef PTW_WATCH_H
#define PTW_WATCH_H

#include "sys.h"
#include "watch_format.h"

#include <signal.h>
#include <stdbool.h>

extern PTW_HIDDEN bool ptw_watching;

/* Before the handshake: read the plan, open what is to be watched. The descriptors that the supervisor is to have go to
 * `ret` (PTW_WATCHES of them); returns how many. */
PTW_HIDDEN unsigned ptw_watches_open(int *ret);

/* After it: watch. `fds` are closed; not `traced`: nothing is watched. */
PTW_HIDDEN void ptw_watches_begin(const int *fds, unsigned count, bool traced);

/* Libraries have come or gone (probes.h has the same): watch what was waited for. */
PTW_HIDDEN void ptw_watches_arrived(void);

/* Memory of a library that another thread's process has loaded is mapped here now: under the engine each process has to
 * ask for itself. */
PTW_HIDDEN void ptw_watches_admitted(void);

/* In a fork child, before it logs. */
PTW_HIDDEN void ptw_watches_forked(void);

/* The program's sigaction for SIGTRAP where threads are threads. False: it is the kernel's business. */
PTW_HIDDEN bool ptw_watch_sigaction(int signal, const struct sigaction *action, struct sigaction *old);

/* `mask` as the program may have it: without SIGTRAP while that is ours. */
static inline uint64_t ptw_watch_mask(uint64_t mask)
{
	return ptw_watching ? mask & ~(1ull << (SIGTRAP - 1)) : mask;
}

#endif
