/* SPDX-License-Identifier: MIT */
/* A handler that resets itself runs in one thread, and then the signal does by default to all what it does. A new
 * handler holds in all threads when sigaction returns.
 *
 * Ends: SIGUSR1 */
#include "promise.h"

static volatile int runs, others;
static struct gate gate = GATE;

static void handler(int number) { (void)number; runs++; }

static void other(int number) { (void)number; others++; }

static void *idle(void *unused)
{
	gate_open(&gate, 1);
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = other}, now;
	pthread_t thread = start(idle, NULL);
	gate_wait(&gate, 1);
	for (int i = 0; i < 20; i++) {
		action.sa_handler = other;
		PROMISE(sigaction(SIGUSR2, &action, NULL) == 0 && pthread_kill(thread, SIGUSR2) == 0);
		while (others == i)
			sleep_ms(1);
		PROMISE(signal(SIGUSR2, SIG_DFL) == other);
	}
	action.sa_handler = handler;
	action.sa_flags = (int)SA_RESETHAND;
	sigaction(SIGUSR1, &action, NULL);
	PROMISE(pthread_kill(thread, SIGUSR1) == 0);
	while (!runs)
		sleep_ms(1);
	PROMISE(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
	raise(SIGUSR1);
	return 0;
}
