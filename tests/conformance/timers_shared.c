/* SPDX-License-Identifier: MIT */
/* A timer that one thread made is set, read and deleted by others, also when its maker has ended; a child of fork has no
 * timers. */
#include "promise.h"

#include <sys/time.h>

static timer_t timer;
static volatile int ticks;

static void handler(int number) { (void)number; ticks++; }

static void *make(void *unused)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2};
	PROMISE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	return unused;
}

static void *set(void *value) { return (void *)(long)timer_settime(timer, 0, value, NULL); }

static void *delete(void *unused)
{
	(void)unused;
	return (void *)(long)timer_delete(timer);
}

static void *fork_one(void *unused)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct itimerspec left;
		struct itimerval interval;
		PROMISE(timer_gettime(timer, &left) == -1 && errno == EINVAL);
		PROMISE(getitimer(ITIMER_REAL, &interval) == 0 && interval.it_value.tv_sec == 0);
		_exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return unused;
}

int main(void)
{
	struct itimerspec every = {{0, 5 * MS}, {0, 5 * MS}}, never = {{0, 0}, {0, 0}}, left;
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGRTMIN + 2, &action, NULL);
	PROMISE(alarm(1000) == 0);
	in_thread(make, NULL);
	PROMISE(in_thread(set, &every) == 0);
	for (int i = 0; i < 5000 && ticks < 3; i++)
		sleep_ms(1);
	PROMISE(ticks >= 3 && timer_gettime(timer, &left) == 0 && left.it_interval.tv_nsec == 5 * MS);
	in_thread(fork_one, NULL);
	PROMISE(in_thread(set, &never) == 0 && timer_getoverrun(timer) >= 0);
	PROMISE(in_thread(delete, NULL) == 0);
	PROMISE(timer_settime(timer, 0, &every, NULL) == -1 && errno == EINVAL);
	PROMISE(alarm(0) > 990);
	return 0;
}
