/* SPDX-License-Identifier: MIT */
/* vfork_before_exec sleeps|computes [blocked] PROGRAM [ARGUMENT ...]: a child of vfork that says "waiting", takes half a
 * second, and executes the program; ends with its status. blocked: with SIGTSTP blocked. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void take_time(int sleeps)
{
	const long long end = now() + 500000000;

	while (now() < end)
		if (sleeps)
			usleep(20000);
}

static void block_stop(void)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	sigprocmask(SIG_BLOCK, &stop, NULL);
}

int main(int argc, char **argv)
{
	const int sleeps = argc > 1 && !strcmp(argv[1], "sleeps");
	const int first = argc > 2 && !strcmp(argv[2], "blocked") ? 3 : 2;
	int status = 0;
	pid_t child;

	if (argc <= first)
		return 2;
	if (first == 3)
		block_stop();
	child = vfork();
	if (child == 0) {
		if (write(1, "waiting\n", 8) != 8)
			_exit(8);
		take_time(sleeps);
		execv(argv[first], argv + first);
		_exit(9);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 7;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
}
