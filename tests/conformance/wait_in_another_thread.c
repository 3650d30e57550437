/* SPDX-License-Identifier: MIT */
/* A child that one thread forked is waited for by another, with its status and its use of resources. */
#include "promise.h"

#include <sys/resource.h>

static pid_t child;

static void *fork_one(void *unused)
{
	child = fork();
	if (child == 0)
		_exit(44);
	return unused;
}

static void *wait_for_it(void *unused)
{
	int *status = (int *)untouched(1);
	struct rusage *usage = (struct rusage *)untouched(1);
	PROMISE(wait4(child, status, 0, usage) == child);
	PROMISE(WIFEXITED(*status) && WEXITSTATUS(*status) == 44);
	return unused;
}

int main(void)
{
	int status;
	in_thread(fork_one, NULL);
	in_thread(wait_for_it, NULL);
	in_thread(fork_one, NULL);
	PROMISE(wait(&status) == child && WEXITSTATUS(status) == 44);
	return 0;
}
