/* SPDX-License-Identifier: MIT */
/* sigsuspend in a thread waits with another mask, runs the handler, is EINTR, and puts the mask back. */
#include "promise.h"

static volatile int runs;
static struct gate gate = GATE;

static void handler(int number) { (void)number; runs++; }

static void *suspend(void *unused)
{
	sigset_t none, now;
	sigemptyset(&none);
	gate_open(&gate, 1);
	PROMISE(sigsuspend(&none) == -1 && errno == EINTR && runs == 1);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	PROMISE(sigismember(&now, SIGUSR1));
	return unused;
}

int main(void)
{
	sigset_t set;
	signal(SIGUSR1, handler);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_t thread = start(suspend, NULL);
	gate_wait(&gate, 1);
	PROMISE(runs == 0);
	pthread_kill(thread, SIGUSR1);
	join(thread);
	return 0;
}
