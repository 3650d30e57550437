/* SPDX-License-Identifier: MIT */
/* Signals for the program that only threads can take which end at once: each is taken by one of them, or by a later one. */
#include "promise.h"

#include <sys/ioctl.h>

enum { SIGNALS = 300 };

static int acknowledge[2];

static void handler(int number)
{
	char byte = 'x';
	(void)number;
	PROMISE(write(acknowledge[1], &byte, 1) == 1);
}

/* Takes what is there, and ends. */
static void *open_for_a_moment(void *set)
{
	PROMISE(pthread_sigmask(SIG_UNBLOCK, set, NULL) == 0);
	return NULL;
}

/* A process of its own: each signal is sent when the one before was handled. */
static pid_t start_sender(pid_t to)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	char byte;
	for (int i = 0; i < SIGNALS; i++) {
		kill(to, SIGUSR1);
		if (read(acknowledge[0], &byte, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigset_t set;
	int status, left;
	pid_t ended;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	PROMISE(pipe(acknowledge) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	PROMISE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	pid_t sender = start_sender(getpid());
	PROMISE(sender > 0);
	do {
		in_thread(open_for_a_moment, &set);
		ended = waitpid(sender, &status, WNOHANG);
	} while (ended == 0);
	PROMISE(ended == sender && status == 0);
	PROMISE(ioctl(acknowledge[0], FIONREAD, &left) == 0 && left == 0);
	return 0;
}
