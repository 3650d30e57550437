/* SPDX-License-Identifier: MIT */
/* An interval timer that a thread sets signals the process, and stops when another thread stops it. */
#include "promise.h"

#include <sys/time.h>

static volatile int ticks;

static void handler(int number) { (void)number; ticks++; }

static void *set(void *argument)
{
	struct itimerval before;
	PROMISE(setitimer(ITIMER_REAL, argument, &before) == 0);
	return (void *)(before.it_interval.tv_usec);
}

int main(void)
{
	struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	in_thread(set, &every);
	for (int i = 0; i < 2000 && ticks < 5; i++)
		sleep_ms(1);
	PROMISE(ticks >= 5);
	PROMISE(in_thread(set, &never) == (void *)5000);
	int then = ticks;
	sleep_ms(30);
	PROMISE(ticks <= then + 1);
	return 0;
}
