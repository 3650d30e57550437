/* SPDX-License-Identifier: MIT */
/* A thread begins with the signal mask of its attribute, and with no pending signal of its creator's. */
#include "promise.h"

static void *look(void *unused)
{
	sigset_t set;
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	PROMISE(sigismember(&set, SIGUSR2) && !sigismember(&set, SIGUSR1));
	return unused;
}

static void *pending(void *unused)
{
	sigset_t set;
	sigpending(&set);
	PROMISE(!sigismember(&set, SIGUSR1));
	return unused;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR1);
	sigpending(&set);
	PROMISE(sigismember(&set, SIGUSR1));
	in_thread(pending, NULL);
	pthread_attr_init(&attributes);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	PROMISE(pthread_attr_setsigmask_np(&attributes, &set) == 0);
	PROMISE(pthread_create(&thread, &attributes, look, NULL) == 0);
	join(thread);
	return 0;
}
