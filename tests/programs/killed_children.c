/* SPDX-License-Identifier: MIT */
/*
 * Forks children that call getppid for ever, or execute a program that sleeps, and kills each a moment later than the one
 * before. Usage: killed_children COUNT STEP_US [PROGRAM]
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void live(const char *program)
{
	if (program)
		execl(program, program, "60", (char *)NULL);
	while (!program)
		(void)getppid();
	_exit(127);
}

int main(int argc, char **argv)
{
	const long count = argc > 2 ? atol(argv[1]) : 0, step = argc > 2 ? atol(argv[2]) : 0;

	for (long i = 0; i < count; i++) {
		const struct timespec delay = {.tv_nsec = i * step % 1000000 * 1000};
		int status = 0;
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (child == 0)
			live(argv[3]);
		(void)nanosleep(&delay, NULL);
		(void)kill(child, SIGKILL);
		if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			return 1;
	}
	puts("killed them all");
	return 0;
}
