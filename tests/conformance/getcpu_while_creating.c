/* SPDX-License-Identifier: MIT */
/* Threads that are made elsewhere do not change on which processor a thread is told to run (restartable sequences). */
#include "promise.h"

#include <sched.h>

enum { ROUNDS = 300 };

static void *elsewhere(void *processor)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(*(const int *)processor, &set);
	PROMISE(sched_setaffinity(0, sizeof set, &set) == 0 && sched_getcpu() == *(const int *)processor);
	return NULL;
}

int main(void)
{
	cpu_set_t all, one;
	int here = -1, there = -1;
	PROMISE(sched_getaffinity(0, sizeof all, &all) == 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all))
			here < 0 ? (here = i) : (there = i);
	if (there < 0)
		return 0; /* one processor: nothing can be told wrong */
	CPU_ZERO(&one);
	CPU_SET(here, &one);
	PROMISE(sched_setaffinity(0, sizeof one, &one) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread = start(elsewhere, &there);
		PROMISE(sched_getcpu() == here);
		join(thread);
		PROMISE(sched_getcpu() == here);
	}
	return 0;
}
