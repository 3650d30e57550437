/* SPDX-License-Identifier: MIT */
/* clock_gettime, gettimeofday, time, nanosleep, clock_nanosleep, getitimer and timerfd work with times in
 * fresh pages. */
#include "fresh.h"

#include <sys/time.h>
#include <sys/timerfd.h>

static void body(char *memory)
{
	struct timespec *time = (struct timespec *)memory, *left = (struct timespec *)(memory + 4200);
	PROMISE(clock_gettime(CLOCK_REALTIME, time) == 0 && time->tv_sec > 1000000);
	PROMISE(clock_getres(CLOCK_MONOTONIC, time) == 0);
	PROMISE(gettimeofday((struct timeval *)(memory + 5000), NULL) == 0);
	*time = (struct timespec){0, MS};
	PROMISE(nanosleep(time, left) == 0 && clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) == 0);
	PROMISE(getitimer(ITIMER_VIRTUAL, (struct itimerval *)(memory + 6000)) == 0);
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec *setting = (struct itimerspec *)(memory + 7000), *old = (struct itimerspec *)(memory + 300);
	*setting = (struct itimerspec){{0, 0}, {0, MS}};
	PROMISE(timerfd_settime(fd, 0, setting, old) == 0 && timerfd_gettime(fd, setting) == 0);
	PROMISE(read(fd, memory + 1000, 8) == 8 && *(uint64_t *)(memory + 1000) == 1 && close(fd) == 0);
	PROMISE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, time) == 0);
}

static void body_zone(char *memory)
{
	PROMISE(gettimeofday((struct timeval *)memory, (struct timezone *)(memory + 5000)) == 0);
}

static void body_seconds(char *memory) { PROMISE(time((time_t *)memory) > 1000000 && *(time_t *)memory > 1000000); }

int main(void)
{
	with_fresh_memory(body);
	with_fresh_memory(body_zone);
	with_fresh_memory(body_seconds);
	return 0;
}
