/* SPDX-License-Identifier: MIT */
/* siglongjmp puts back the mask of its sigsetjmp: a thread that jumped so takes a signal for the process again. */
#include "promise.h"

#include <setjmp.h>

static volatile int runs;
static volatile pthread_t ran_in;
static struct gate gate = GATE;
static sigset_t set;

static void handler(int number)
{
	(void)number;
	ran_in = pthread_self();
	runs++;
}

static void *jump(void *unused)
{
	sigjmp_buf place;
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	if (sigsetjmp(place, 1) == 0) {
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		siglongjmp(place, 1);
	}
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGUSR1, &action, NULL);
	pthread_t thread = start(jump, NULL);
	gate_wait(&gate, 1);
	PROMISE(kill(getpid(), SIGUSR1) == 0);
	for (int i = 0; i < 5000 && !runs; i++)
		sleep_ms(1);
	PROMISE(runs == 1 && pthread_equal(ran_in, thread));
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
