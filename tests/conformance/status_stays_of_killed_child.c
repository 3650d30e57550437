/* SPDX-License-Identifier: MIT */
/* The status of a child that a thread forked and that died of a signal names that signal. */
#include "promise.h"

static void *kill_one(void *argument)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		for (;;)
			pause();
	}
	PROMISE(kill(child, (int)(long)argument) == 0);
	PROMISE(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	PROMISE(WTERMSIG(status) == (int)(long)argument);
	PROMISE(waitpid(child, &status, 0) == -1 && errno == ECHILD);
	return NULL;
}

int main(void)
{
	in_thread(kill_one, (void *)SIGKILL);
	in_thread(kill_one, (void *)SIGTERM);
	return 0;
}
