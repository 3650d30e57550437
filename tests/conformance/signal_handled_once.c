/* SPDX-License-Identifier: MIT */
/* A signal for the process runs its handler once in all, not once in each thread. */
#include "promise.h"

static struct gate gate = GATE;
static volatile int runs;

static void handler(int number)
{
	(void)number;
	__atomic_fetch_add(&runs, 1, __ATOMIC_SEQ_CST);
}

static void *wait_for_gate(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

int main(void)
{
	pthread_t threads[4];
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 4; i++)
		threads[i] = start(wait_for_gate, NULL);
	for (int i = 1; i <= 10; i++) {
		kill(getpid(), SIGUSR1);
		for (int k = 0; k < 5000 && runs < i; k++)
			sleep_ms(1);
		PROMISE(runs == i);
	}
	sleep_ms(20);
	PROMISE(runs == 10);
	gate_open(&gate, 1);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	return 0;
}
