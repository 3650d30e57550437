/* SPDX-License-Identifier: MIT */
/* A library with OpenMP's loops, barriers, critical sections, single regions and tasks; `rounds` of them by 3 threads. */
#include <stdio.h>

int work(int rounds)
{
	long sum = 0, critical = 0, tasks = 0;

	for (int round = 0; round < rounds; round++) {
#pragma omp parallel num_threads(3)
		{
#pragma omp for reduction(+ : sum) schedule(dynamic, 7)
			for (int i = 0; i < 1000; i++)
				sum += i;
#pragma omp barrier
#pragma omp critical
			critical++;
#pragma omp single
			for (int i = 0; i < 20; i++)
#pragma omp task
#pragma omp atomic
				tasks++;
		}
	}
	printf("%ld %ld %ld\n", sum, critical, tasks);
	return 0;
}
