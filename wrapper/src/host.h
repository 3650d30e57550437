/* SPDX-License-Identifier: MIT */
/* Facts about this processor that Python cannot read: the time stamp counter and CPUID. Thread-safe, no state. */
#ifndef PTWEAVE_HOST_H
#define PTWEAVE_HOST_H

#include <stdint.h>

struct ptw_moment {
	uint64_t tsc; /* ticks */
	uint64_t ns;  /* CLOCK_MONOTONIC */
};

/* One moment on both clocks, the closest of `tries` attempts. Returns 0, or a negative errno. */
int ptw_host_moment(struct ptw_moment *ret, int tries);

struct ptw_cpu {
	char vendor[13];
	uint32_t family, model, stepping;
};

/* The processor's identity (SDM vol. 2, CPUID leaves 0 and 1). */
void ptw_host_cpu(struct ptw_cpu *ret);

#endif
