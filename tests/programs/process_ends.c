// SPDX-License-Identifier: MIT
/*
 * process_ends killed: a child is killed inside pause.
 * process_ends threads: a thread is inside pause when the process ends.
 * process_ends vfork PROGRAM: vfork and exec.
 * process_ends many N: N children that exit at once, 32 at a time.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *wait_forever(void *unused)
{
	pause();
	return unused;
}

static int killed(void)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(9);
	}
	usleep(100000);
	kill(child, SIGKILL);
	return waitpid(child, NULL, 0) == child ? 0 : 3;
}

static int threads(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_forever, NULL))
		return 3;
	usleep(100000);
	_exit(0);
}

static int vforked(char **words)
{
	pid_t child = vfork();

	if (child == 0) {
		execv(words[0], words);
		_exit(9);
	}
	return waitpid(child, NULL, 0) == child ? 0 : 3;
}

static int many(int count)
{
	for (int begun = 0, ended = 0; ended < count;) {
		if (begun < count && begun - ended < 32) {
			if (fork() == 0)
				_exit(0);
			begun++;
		} else {
			wait(NULL);
			ended++;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "killed"))
		return killed();
	if (argc > 1 && !strcmp(argv[1], "threads"))
		return threads();
	if (argc > 2 && !strcmp(argv[1], "vfork"))
		return vforked(argv + 2);
	if (argc > 2 && !strcmp(argv[1], "many"))
		return many(atoi(argv[2]));
	return 2;
}
