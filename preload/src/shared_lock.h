/* SPDX-License-Identifier: MIT */
/*
 * A lock in memory that processes share. Three states (free, held, held and waited for), no owner: a process that is
 * killed with one in its hands takes the program with it (see warden.c). Not for signal handlers, unless every holder
 * has signals blocked.
 */
#ifndef PTW_SHARED_LOCK_H
#define PTW_SHARED_LOCK_H

#include "sys.h"

#include <stdbool.h>

static inline long ptw_shared_wait(uint32_t *word, uint32_t value, const struct timespec *span)
{
	return PTW_SYS(SYS_futex, word, FUTEX_WAIT, value, span, 0, 0);
}

static inline void ptw_shared_wake(uint32_t *word, int count)
{
	PTW_SYS(SYS_futex, word, FUTEX_WAKE, count, 0, 0, 0);
}

static inline void ptw_lock(uint32_t *lock)
{
	uint32_t state = 0;
	if (__atomic_compare_exchange_n(lock, &state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	for (int spin = 0; spin < 60; spin++) {
		__builtin_ia32_pause();
		state = 0;
		if (__atomic_compare_exchange_n(lock, &state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
	}
	while (__atomic_exchange_n(lock, 2, __ATOMIC_ACQUIRE) != 0)
		ptw_shared_wait(lock, 2, NULL);
}

static inline void ptw_unlock(uint32_t *lock)
{
	if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2)
		ptw_shared_wake(lock, 1);
}

/* For what a signal's handler may want, too: all signals are blocked meanwhile. */
static inline void ptw_lock_masked(uint32_t *lock, uint64_t *mask)
{
	ptw_block_signals(mask);
	ptw_lock(lock);
}

static inline void ptw_unlock_masked(uint32_t *lock, const uint64_t *mask)
{
	ptw_unlock(lock);
	ptw_restore_signals(mask);
}

#endif
