/* SPDX-License-Identifier: MIT */
/* A signalfd read in one thread gives what another thread sent to the process. */
#include "promise.h"

#include <sys/signalfd.h>

static int fd;

static void *take(void *unused)
{
	struct signalfd_siginfo *info = (struct signalfd_siginfo *)untouched(1);
	PROMISE(read(fd, info, sizeof *info) == sizeof *info);
	PROMISE(info->ssi_signo == SIGUSR1 && info->ssi_pid == (uint32_t)getpid());
	return unused;
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	PROMISE(fd >= 0);
	kill(getpid(), SIGUSR1);
	take(NULL);
	pthread_t thread = start(take, NULL);
	sleep_ms(10);
	pthread_kill(thread, SIGUSR1);
	join(thread);
	return 0;
}
