/* SPDX-License-Identifier: MIT */
/* TSC to ns, as ptweave.data.manifest.Clocks.to_ns does it; a test keeps them equal. */
#ifndef PTW_EVL_TIME_H
#define PTW_EVL_TIME_H

#include "evl.h"

/* Any tsc is allowed; a time beyond 64 bits wraps. Clocks that make no sense give their first moment. */
static inline int64_t evl_to_ns(const struct evl_clocks *c, uint64_t tsc)
{
	__int128 span = (__int128)c->tsc1 - c->tsc0, time = (__int128)c->t1 - c->t0;
	if (span <= 0 || time < 0 || time > INT64_MAX / 2)
		return c->t0;
	__int128 product = ((__int128)tsc - c->tsc0) * time, quotient = product / span;
	if (product % span < 0)
		quotient--; /* floor */
	return (int64_t)((uint64_t)c->t0 + (uint64_t)quotient);
}

#endif
