/* SPDX-License-Identifier: MIT */
/* SIGSYS that somebody sends while threads are made reaches its handler, each time, and blocked it stays pending. */
#include "promise.h"

#include <sys/ioctl.h>

enum { SIGNALS = 300 };

static int acknowledge[2];

static void handler(int number, siginfo_t *info, void *context)
{
	char byte = 'x';
	(void)number, (void)context;
	PROMISE(info->si_code == SI_USER);
	PROMISE(write(acknowledge[1], &byte, 1) == 1);
}

/* Calls of the handler that nobody has read of. In a pipe, as another thread may make them: in memory of its own. */
static int unread(void)
{
	int count;
	PROMISE(ioctl(acknowledge[0], FIONREAD, &count) == 0);
	return count;
}

static void *nothing(void *unused) { return unused; }

/* A process of its own: each signal is sent when the one before was handled. */
static pid_t start_sender(pid_t to)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	char byte;
	for (int i = 0; i < SIGNALS; i++) {
		kill(to, SIGSYS);
		if (read(acknowledge[0], &byte, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigset_t set, pending;
	int status;
	sigemptyset(&set);
	sigaddset(&set, SIGSYS);
	PROMISE(pipe(acknowledge) == 0 && sigaction(SIGSYS, &action, NULL) == 0);
	pid_t sender = start_sender(getpid());
	PROMISE(sender > 0);
	pid_t ended;
	do {
		in_thread(nothing, NULL);
		ended = waitpid(sender, &status, WNOHANG);
	} while (ended == 0);
	PROMISE(ended == sender && status == 0 && unread() == 0);

	PROMISE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGSYS) == 0);
	for (int i = 0; i < 5; i++)
		in_thread(nothing, NULL);
	PROMISE(sigpending(&pending) == 0 && sigismember(&pending, SIGSYS) && unread() == 0);
	PROMISE(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && unread() == 1);
	return 0;
}
