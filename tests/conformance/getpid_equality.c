/* SPDX-License-Identifier: MIT */
/* All threads have one pid and one parent, and each its own tid; main's tid is the pid. */
#include "promise.h"

static pid_t pid, parent, tids[4];
static pthread_barrier_t barrier;

static void *look(void *argument)
{
	PROMISE(getpid() == pid && getppid() == parent && getpgrp() == getpgid(0) && getsid(0) == getsid(pid));
	*(pid_t *)argument = gettid();
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 4; i++)
		PROMISE((tids[i] == gettid()) == (argument == &tids[i]));
	PROMISE(gettid() != pid);
	pthread_barrier_wait(&barrier);
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	pid = getpid(), parent = getppid();
	PROMISE(gettid() == pid);
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		threads[i] = start(look, &tids[i]);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	return 0;
}
