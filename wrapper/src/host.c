/* SPDX-License-Identifier: MIT */
/* See host.h. Thread-safe and signal-safe: nothing is kept. */
#define _GNU_SOURCE
#include "host.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

int ptw_host_moment(struct ptw_moment *ret, int tries)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < tries; i++) {
		struct timespec now;
		unsigned int core;
		uint64_t before = __rdtscp(&core);

		if (clock_gettime(CLOCK_MONOTONIC, &now))
			return -errno;
		uint64_t after = __rdtscp(&core);

		/* the attempt that took least was interrupted least: the clock was read in its middle */
		if (after - before < best) {
			best = after - before;
			ret->tsc = before + best / 2;
			ret->ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
		}
	}
	return best == UINT64_MAX ? -EINVAL : 0;
}

void ptw_host_cpu(struct ptw_cpu *ret)
{
	uint32_t a = 0, b = 0, c = 0, d = 0;

	memset(ret, 0, sizeof(*ret));
	__cpuid(0, a, b, c, d);
	memcpy(ret->vendor, &b, 4);
	memcpy(ret->vendor + 4, &d, 4);
	memcpy(ret->vendor + 8, &c, 4);
	__cpuid(1, a, b, c, d);
	ret->stepping = a & 15;
	ret->family = (a >> 8) & 15;
	ret->model = (a >> 4) & 15;
	if (ret->family == 6 || ret->family == 15)
		ret->model |= ((a >> 16) & 15) << 4;
	if (ret->family == 15)
		ret->family += (a >> 20) & 255;
}
