/* SPDX-License-Identifier: MIT */
/* The functions of the C library that fork by themselves (daemon, forkpty, _Fork) leave the child a program of its own: what
 * it writes its parent does not see, and it may have threads. */
#include "promise.h"

#include <pty.h>
#include <sys/ioctl.h>
#include <stdbool.h>

static int value;

static void *set(void *to)
{
	value = (int)(intptr_t)to;
	return NULL;
}

/* Ends the child. */
__attribute__((noreturn)) static void child_goes_on(int out, bool leads)
{
	in_thread(set, (void *)7);
	bool right = value == 7 && (getsid(0) == getpid()) == leads;
	PROMISE(write(out, right ? "y" : "n", 1) == 1);
	_exit(0);
}

static bool said_yes(int in)
{
	char byte = 0;
	return read(in, &byte, 1) == 1 && byte == 'y';
}

static void by_daemon(int in, int out)
{
	pid_t child = fork();
	if (child == 0) {
		if (daemon(1, 0) != 0)
			_exit(1);
		child_goes_on(out, true);
	}
	int status;
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	PROMISE(said_yes(in) && value == 1);
}

static void by_forkpty(void)
{
	int terminal, status;
	struct winsize size = {.ws_row = 33, .ws_col = 44}, seen = {0};
	char name[100], byte = 0;
	pid_t child = forkpty(&terminal, name, NULL, &size);
	PROMISE(child >= 0);
	if (child == 0)
		child_goes_on(STDOUT_FILENO, true);
	PROMISE(strncmp(name, "/dev/", 5) == 0 && ioctl(terminal, TIOCGWINSZ, &seen) == 0 && seen.ws_col == 44);
	PROMISE(read(terminal, &byte, 1) == 1 && byte == 'y' && value == 1);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	close(terminal);
}

static void not_run(void) { _exit(3); }

static void by_fork_alone(int in, int out)
{
	int status;
	PROMISE(pthread_atfork(NULL, NULL, not_run) == 0);
	pid_t child = _Fork();
	PROMISE(child >= 0);
	if (child == 0)
		child_goes_on(out, false);
	PROMISE(waitpid(child, &status, 0) == child && status == 0 && said_yes(in) && value == 1);
}

int main(void)
{
	int ends[2];
	in_thread(set, (void *)1);
	PROMISE(pipe(ends) == 0);
	by_daemon(ends[0], ends[1]);
	by_forkpty();
	by_fork_alone(ends[0], ends[1]);
	return 0;
}
