/* SPDX-License-Identifier: MIT */
/* A child that a thread forked has the process for its parent, also when that thread has ended. */
#include "promise.h"

static int ends[2];

static void *fork_one(void *pid)
{
	char byte;
	pid_t parent = getpid(), child = fork();
	if (child == 0) {
		close(ends[1]);
		PROMISE(read(ends[0], &byte, 1) == 1);
		PROMISE(getppid() == parent && getpid() != parent && gettid() == getpid());
		_exit(0);
	}
	*(pid_t *)pid = child;
	return NULL;
}

int main(void)
{
	pid_t child;
	int status;
	PROMISE(pipe(ends) == 0);
	in_thread(fork_one, &child);
	sleep_ms(10);
	PROMISE(write(ends[1], "x", 1) == 1);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
