/* SPDX-License-Identifier: MIT */
/* A thread's CPU clock counts its own time, the process's clock that of all threads, also of ended ones. */
#include "promise.h"

static void *burn(void *unused)
{
	int64_t before = now_ns(CLOCK_THREAD_CPUTIME_ID);
	while (now_ns(CLOCK_THREAD_CPUTIME_ID) - before < 60 * (int64_t)MS)
		;
	return unused;
}

int main(void)
{
	clockid_t of_thread;
	int64_t mine = now_ns(CLOCK_THREAD_CPUTIME_ID), all = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	clock_t ticks = clock();
	pthread_t thread = start(burn, NULL);
	PROMISE(pthread_getcpuclockid(thread, &of_thread) == 0 && now_ns(of_thread) >= 0);
	join(thread);
	PROMISE(now_ns(CLOCK_THREAD_CPUTIME_ID) - mine < 50 * (int64_t)MS);
	PROMISE(now_ns(CLOCK_PROCESS_CPUTIME_ID) - all >= 60 * (int64_t)MS);
	PROMISE((clock() - ticks) / (CLOCKS_PER_SEC / 1000) >= 55);
	return 0;
}
