/* SPDX-License-Identifier: MIT */
/* A signal for the process is handled by a thread that does not block it, whichever that is. */
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

static void *open_for_it(void *unused)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	return unused;
}

int main(void)
{
	sigset_t set;
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_t thread = start(open_for_it, NULL);
	gate_wait(&gate, 1);
	for (int i = 0; i < 5; i++) {
		PROMISE(kill(getpid(), SIGUSR1) == 0);
		for (int k = 0; k < 5000 && runs == i; k++)
			sleep_ms(1);
		PROMISE(runs == i + 1 && pthread_equal(ran_in, thread));
	}
	gate_open(&gate, 2);
	join(thread);
	PROMISE(runs == 5);
	return 0;
}
