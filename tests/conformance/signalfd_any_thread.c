/* SPDX-License-Identifier: MIT */
/* A signal for the process that all block is read from a signalfd by whichever thread reads or polls it. */
#include "promise.h"

#include <poll.h>
#include <sys/signalfd.h>

static int fd;

static void take(int number)
{
	struct signalfd_siginfo info;
	PROMISE(read(fd, &info, sizeof info) == sizeof info);
	PROMISE((int)info.ssi_signo == number && info.ssi_pid == (uint32_t)getpid() && info.ssi_code == SI_USER);
}

static void *take_two(void *unused)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	take(SIGUSR1);
	PROMISE(poll(&ready, 1, 10000) == 1);
	take(SIGUSR2);
	return unused;
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	PROMISE(fd >= 0);
	kill(getpid(), SIGUSR1);
	pthread_t thread = start(take_two, NULL);
	sleep_ms(30);
	kill(getpid(), SIGUSR2);
	join(thread);
	kill(getpid(), SIGUSR2);
	take(SIGUSR2);
	return 0;
}
