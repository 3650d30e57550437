/* SPDX-License-Identifier: MIT */
/* Main and a thread fork by functions of their own; their children end at once. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static pid_t fork_by_main(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(3);
	return pid;
}

__attribute__((noinline)) static pid_t fork_by_thread(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(4);
	return pid;
}

static void await(pid_t pid)
{
	if (waitpid(pid, NULL, 0) != pid)
		exit(2);
}

static void *run(void *unused)
{
	await(fork_by_thread());
	return unused;
}

int main(void)
{
	pthread_t thread;
	await(fork_by_main());
	if (pthread_create(&thread, NULL, run, NULL) != 0)
		return 2;
	pthread_join(thread, NULL);
	return 0;
}
