/* SPDX-License-Identifier: MIT */
/* pthread_kill runs the handler in the thread that is named; signal 0 asks whether it lives. */
#include "promise.h"

static struct gate gate = GATE;
static volatile pthread_t ran_in;
static volatile int runs;

static void handler(int number)
{
	(void)number;
	ran_in = pthread_self();
	runs++;
}

static void *wait_for_gate(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t threads[3];
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 3; i++)
		threads[i] = start(wait_for_gate, NULL);
	for (int i = 0; i < 3; i++) {
		PROMISE(pthread_kill(threads[i], 0) == 0);
		PROMISE(pthread_kill(threads[i], SIGUSR1) == 0);
		while (runs == i)
			sleep_ms(1);
		PROMISE(pthread_equal(ran_in, threads[i]));
	}
	PROMISE(pthread_kill(pthread_self(), SIGUSR1) == 0 && runs == 4 && pthread_equal(ran_in, pthread_self()));
	PROMISE(pthread_kill(threads[0], 1000) == EINVAL);
	gate_open(&gate, 1);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	return 0;
}
