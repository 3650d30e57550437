/* SPDX-License-Identifier: MIT */
/* Forks a child that computes, one that runs another program (the words given), and spawns that program. */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int work(int rounds)
{
	volatile int x = 1;

	for (int i = 0; i < rounds; i++)
		x = x % 3 ? x * 5 + i : x / 3;
	return x & 7;
}

int main(int argc, char **argv)
{
	int status, sum = 0;
	pid_t pid = fork();

	if (argc < 2 || pid < 0)
		return 1;
	if (pid == 0)
		return work(3000);
	waitpid(pid, &status, 0);
	sum += WEXITSTATUS(status);
	pid = fork();
	if (pid == 0) {
		execv(argv[1], argv + 1);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (posix_spawn(&pid, argv[1], NULL, NULL, argv + 1, environ))
		return 2;
	waitpid(pid, &status, 0);
	sum += work(2000);
	printf("%d\n", sum);
	return 0;
}
