/* SPDX-License-Identifier: MIT */
/* The signal mask is inherited from the creator and is each thread's own from then on. */
#include "promise.h"

static struct gate gate = GATE;

static int blocked(int number)
{
	sigset_t set;
	PROMISE(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0);
	return sigismember(&set, number);
}

static void *look(void *unused)
{
	sigset_t set;
	PROMISE(blocked(SIGUSR1) && !blocked(SIGUSR2));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	PROMISE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(blocked(SIGUSR1) && blocked(SIGUSR2));
	return unused;
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	PROMISE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	PROMISE(blocked(SIGUSR1) && !blocked(SIGUSR2));
	PROMISE(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
