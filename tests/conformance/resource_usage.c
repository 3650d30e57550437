/* SPDX-License-Identifier: MIT */
/* getrusage and times count what all threads used, also ended ones. */
#include "promise.h"

#include <sys/resource.h>
#include <sys/times.h>

static void *burn(void *unused)
{
	int64_t before = now_ns(CLOCK_THREAD_CPUTIME_ID);
	struct rusage usage;
	while (now_ns(CLOCK_THREAD_CPUTIME_ID) - before < 60 * (int64_t)MS)
		;
	PROMISE(getrusage(RUSAGE_THREAD, &usage) == 0);
	PROMISE((usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000 + usage.ru_utime.tv_sec * 1000 >= 50);
	return unused;
}

int main(void)
{
	struct rusage usage;
	struct tms times_used;
	in_thread(burn, NULL);
	PROMISE(getrusage(RUSAGE_SELF, &usage) == 0);
	PROMISE((usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000 + usage.ru_utime.tv_sec * 1000 >= 55);
	PROMISE(times(&times_used) != (clock_t)-1);
	PROMISE((times_used.tms_utime + times_used.tms_stime) * 1000 / sysconf(_SC_CLK_TCK) >= 50);
	PROMISE(times_used.tms_cutime == 0);
	return 0;
}
