/* SPDX-License-Identifier: MIT */
/* posix_spawn, vfork, system and popen work in threads, at the same time. */
#include "promise.h"

#include <spawn.h>

extern char **environ;

static void *spawn(void *unused)
{
	char *argv[] = {"sh", "-c", "exit 3", NULL}, line[64] = "";
	int status;
	pid_t child;
	PROMISE(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) == 0);
	PROMISE(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
	child = vfork();
	if (child == 0)
		_exit(4);
	PROMISE(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
	FILE *pipe = popen("echo from a child", "r");
	PROMISE(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "from a child\n") == 0 && pclose(pipe) == 0);
	return unused;
}

int main(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		threads[i] = start(spawn, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	PROMISE(WEXITSTATUS(system("exit 5")) == 5);
	return 0;
}
