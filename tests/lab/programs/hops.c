/* SPDX-License-Identifier: MIT */
/* ptlab: also static. Computes on one processor, on another, and back, again and again. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

static volatile long sink;

int main(int argc, char **argv)
{
	int hops = argc > 1 ? atoi(argv[1]) : 10;
	long x = 7;

	for (int hop = 0; hop < hops; hop++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(hop & 1, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return 1;
		for (int i = 0; i < 200 + hop; i++)
			x = x & 1 ? x * 3 + hop : x / 2 + i;
	}
	sink = x;
	return 0;
}
