/* SPDX-License-Identifier: MIT */
/* Children of children, forked from threads in each, come back with their statuses. */
#include "promise.h"

static void *generation(void *argument)
{
	long left = (long)argument;
	int status;
	if (left == 0)
		return (void *)1;
	pid_t child = fork();
	if (child == 0)
		_exit((int)(long)in_thread(generation, (void *)(left - 1)) + 1);
	PROMISE(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return (void *)(long)WEXITSTATUS(status);
}

int main(void)
{
	PROMISE((long)in_thread(generation, (void *)3) == 4);
	return 0;
}
