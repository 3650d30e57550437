/* SPDX-License-Identifier: MIT */
/* Calls a small function many times: bench_probe COUNT → nanoseconds for each call, the least of five rounds. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

volatile unsigned long sum;

__attribute__((noinline, noclone)) void probed(unsigned long i)
{
	sum += i;
	sum ^= i << 3;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
	double best = 1e18;
	for (int round = 0; round < 5; round++) {
		double from = now();
		for (unsigned long i = 0; i < count; i++)
			probed(i);
		double took = (now() - from) / (double)count;
		best = took < best ? took : best;
	}
	printf("%.2f\n", best);
	return 0;
}
