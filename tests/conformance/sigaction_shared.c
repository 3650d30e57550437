/* SPDX-License-Identifier: MIT */
/* A handler that one thread installs is every thread's, also of threads that run already. */
#include "promise.h"

static struct gate gate = GATE;
static volatile int one, two;

static void first(int number) { (void)number; one++; }
static void second(int number) { (void)number; two++; }

static void *raise_it(void *unused)
{
	gate_wait(&gate, 1);
	raise(SIGUSR1);
	PROMISE(two == 1 && one == 0);
	struct sigaction action;
	sigaction(SIGUSR1, NULL, &action);
	PROMISE(action.sa_handler == second);
	return unused;
}

static void *install(void *unused)
{
	struct sigaction action = {.sa_handler = second}, before;
	PROMISE(sigaction(SIGUSR1, &action, &before) == 0 && before.sa_handler == first);
	return unused;
}

int main(void)
{
	signal(SIGUSR1, first);
	pthread_t thread = start(raise_it, NULL);
	in_thread(install, NULL);
	gate_open(&gate, 1);
	join(thread);
	raise(SIGUSR1);
	PROMISE(two == 2 && one == 0);
	return 0;
}
