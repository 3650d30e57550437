/* SPDX-License-Identifier: MIT */
/* When main has left by pthread_exit, the last thread's end is the program's: what exit calls still gets signals.
 *
 * Ends: SIGUSR2 */
#include "promise.h"

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
	(void)signal;
	handled = 1;
}

static void at_the_end(void)
{
	PROMISE(kill(getpid(), SIGUSR1) == 0 && handled);
	kill(getpid(), SIGUSR2);
}

static void *last(void *unused)
{
	sleep_ms(50);
	return unused;
}

int main(void)
{
	signal(SIGUSR1, on_signal);
	PROMISE(atexit(at_the_end) == 0);
	start(last, NULL);
	pthread_exit(NULL);
}
