/* SPDX-License-Identifier: MIT */
/* alarm set by one thread ends another's pause with EINTR when only that one takes it. */
#include "promise.h"

static volatile int ran;

static void handler(int number) { (void)number; ran = 1; }

static void *wait_for_it(void *unused)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	while (!ran)
		PROMISE(pause() == -1 && errno == EINTR);
	return unused;
}

int main(void)
{
	sigset_t set;
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_t thread = start(wait_for_it, NULL);
	ualarm(50000, 20000);
	join(thread);
	ualarm(0, 0);
	return 0;
}
