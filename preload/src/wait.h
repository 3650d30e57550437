/* SPDX-License-Identifier: MIT */
/*
 * Process mode: waiting on a word that processes share. Absolute times, CLOCK_REALTIME or CLOCK_MONOTONIC. Returns 0,
 * or negative errno: EAGAIN (the word has another value), EINTR, ETIMEDOUT.
 */
#ifndef PTW_WAIT_H
#define PTW_WAIT_H

#include "sys.h"

static inline long ptw_wait_until(uint32_t *word, uint32_t value, clockid_t clock, const struct timespec *until)
{
	if (until && until->tv_sec < 0)
		return -110 /* ETIMEDOUT: long ago */;
	struct timespec copy = {0, 0};
	if (until)
		copy = *until; /* the caller's may lie where the kernel may not look */
	return PTW_SYS(SYS_futex, word, FUTEX_WAIT_BITSET | (clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0), value,
		       until ? &copy : NULL, 0, FUTEX_BITSET_MATCH_ANY);
}

/* A cancellation point. */
PTW_HIDDEN long ptw_wait_cancellable(uint32_t *word, uint32_t value, clockid_t clock, const struct timespec *until);

#endif
