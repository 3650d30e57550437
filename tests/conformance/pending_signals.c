/* SPDX-License-Identifier: MIT */
/* A signal for the process that all threads block is pending in each; standard ones merge, queued ones keep order and
 * value; who unblocks it has run the handler when that call returns; one that is ignored by then is dropped. */
#include "promise.h"

#include <stdbool.h>

static volatile int runs, values;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (number == SIGRTMIN + 1)
		values = values * 10 + info->si_value.sival_int;
	runs++;
}

static bool is_pending(int number)
{
	sigset_t set;
	PROMISE(sigpending(&set) == 0);
	return sigismember(&set, number);
}

static void *look(void *unused)
{
	PROMISE(is_pending(SIGUSR1) && is_pending(SIGRTMIN + 1) && is_pending(SIGUSR2));
	return unused;
}

static void *open_for_all(void *set)
{
	runs = values = 0;
	PROMISE(pthread_sigmask(SIG_UNBLOCK, set, NULL) == 0);
	PROMISE(runs == 4 && values == 123);
	return NULL;
}

static void *send(void *unused)
{
	for (int i = 1; i <= 3; i++) {
		PROMISE(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
		PROMISE(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}) == 0);
		PROMISE(is_pending(SIGUSR1));
	}
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	struct timespec now = {0, 0};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN + 1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGRTMIN + 1, &action, NULL);
	in_thread(send, NULL);
	look(NULL);
	in_thread(look, NULL);
	PROMISE(runs == 0 && signal(SIGUSR2, SIG_IGN) == SIG_DFL && !is_pending(SIGUSR2));
	in_thread(open_for_all, &set);
	PROMISE(!is_pending(SIGUSR1) && !is_pending(SIGRTMIN + 1));
	send(NULL);
	PROMISE(sigtimedwait(&set, NULL, &now) == SIGUSR1);
	runs = values = 0;
	sigdelset(&set, SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	PROMISE(runs == 3 && values == 123);
	return 0;
}
