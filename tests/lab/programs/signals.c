/* SPDX-License-Identifier: MIT */
/* A timer's signals while it computes, and a fault that is caught and jumped out of. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int alarms;
static sigjmp_buf back;

static void on_alarm(int number)
{
	alarms += number == SIGALRM;
}

static void on_fault(int number)
{
	siglongjmp(back, number);
}

int main(void)
{
	struct itimerval timer = { { 0, 5000 }, { 0, 5000 } };
	volatile long x = 0;

	signal(SIGALRM, on_alarm);
	signal(SIGSEGV, on_fault);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (alarms < 5)
		for (int i = 0; i < 100; i++)
			x += i % 3 ? 1 : 2;
	timer.it_value.tv_usec = timer.it_interval.tv_usec = 0;
	setitimer(ITIMER_REAL, &timer, NULL);
	if (!sigsetjmp(back, 1))
		*(volatile int *)8 = 1;
	puts("done");
	return 0;
}
