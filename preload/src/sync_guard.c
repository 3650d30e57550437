/* SPDX-License-Identifier: MIT */
/*
 * Guards of C++ static variables (Itanium C++ ABI, "One-time Construction API"). Who has initialised one releases
 * (ONCE_DONE) before anybody can pass the guard; who comes to this library and finds it done, or waited for it, acquires
 * (ONCE). Who comes later reads the guard's first byte alone, and is not seen: nothing orders it.
 *
 * These are whole functions, not wrappers: the library that has them may be one that only its user finds. A guard's
 * states are those of libstdc++'s (libsupc++/guard.cc), whose functions may be in a library of their own as well.
 *
 * Processes wait on the shared memory. In the private view everybody has what the initialiser wrote before the byte says
 * that it is done: who reads that asks for nothing.
 */
#define _GNU_SOURCE
#include "alias.h"
#include "event.h"
#include "log.h"
#include "pages.h"
#include "shared_lock.h"
#include "slots.h"
#include "view.h"

enum { DONE = 1, PENDING = 1 << 8, WAITING = 1 << 16 };

PTW_EXPORT int __cxa_guard_acquire(uint64_t *guard);
PTW_EXPORT void __cxa_guard_release(uint64_t *guard);
PTW_EXPORT void __cxa_guard_abort(uint64_t *guard);

static uint32_t *word_of(uint64_t *guard) { return ptw_process_mode ? ptw_alias_of(guard) : (uint32_t *)(void *)guard; }

static void boundary(void)
{
	if (ptw_process_mode)
		ptw_pages_boundary();
}

/* True: it is this thread's to initialise. False: it is done. */
static bool enter_guard(uint32_t *word)
{
	for (;;) {
		uint32_t state = 0;
		if (__atomic_compare_exchange_n(word, &state, PENDING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return true;
		if (state & DONE)
			return false;
		if (!(state & WAITING) && !__atomic_compare_exchange_n(word, &state, state | WAITING, false,
								       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			continue;
		ptw_shared_wait(word, state | WAITING, NULL);
	}
}

static void leave_guard(uint32_t *word, uint32_t state)
{
	if (__atomic_exchange_n(word, state, __ATOMIC_ACQ_REL) & WAITING)
		ptw_shared_wake(word, INT32_MAX);
}

int __cxa_guard_acquire(uint64_t *guard)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t enter = ptw_tsc();
	boundary(); /* it may wait for who waits for what this thread wrote */
	bool mine = enter_guard(word_of(guard));
	boundary();
	if (!mine && ptw_tracing())
		ptw_log_acquire(PTW_ONCE, &caller, enter, guard, 0, true);
	return mine;
}

void __cxa_guard_release(uint64_t *guard)
{
	struct ptw_frame caller = PTW_CALLER;
	bool tracing = ptw_tracing();
	uint64_t enter = ptw_tsc(), version = tracing ? ptw_release(guard) : 0;
	boundary();
	if (ptw_process_mode)
		ptw_view_spread();
	leave_guard(word_of(guard), DONE);
	if (tracing)
		ptw_log_release(PTW_ONCE_DONE, &caller, enter, guard, 0, version);
}

void __cxa_guard_abort(uint64_t *guard)
{
	boundary();
	leave_guard(word_of(guard), 0);
}
