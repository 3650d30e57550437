/* SPDX-License-Identifier: MIT */
/* sigtimedwait is EAGAIN when nothing comes, and gives the value that sigqueue sent. */
#include "promise.h"

static sigset_t set;

static void *take(void *unused)
{
	siginfo_t *info = (siginfo_t *)untouched(1);
	struct timespec soon = {0, 20 * MS}, late = {20, 0};
	PROMISE(sigtimedwait(&set, info, &soon) == -1 && errno == EAGAIN);
	union sigval value = {.sival_int = 1234};
	PROMISE(sigqueue(getpid(), SIGRTMIN, value) == 0);
	PROMISE(sigtimedwait(&set, info, &late) == SIGRTMIN && info->si_value.sival_int == 1234);
	PROMISE(info->si_code == SI_QUEUE && info->si_pid == getpid());
	value.sival_int = 5678;
	PROMISE(pthread_sigqueue(pthread_self(), SIGRTMIN, value) == 0);
	PROMISE(sigwaitinfo(&set, info) == SIGRTMIN && info->si_value.sival_int == 5678);
	return unused;
}

int main(void)
{
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	in_thread(take, NULL);
	take(NULL);
	return 0;
}
