/* SPDX-License-Identifier: MIT */
/* exec and posix_spawn take a path, arguments and an environment that lie in fresh pages. */
#include "fresh.h"

#include <spawn.h>

static void body(char *memory)
{
	char **argv = (char **)memory, **environment = (char **)(memory + 4200);
	int status;
	pid_t child;
	strcpy(memory + 5000, "/bin/sh");
	strcpy(memory + 5500, "-c");
	strcpy(memory + 6000, "test \"$VALUE\" = given && exit 31");
	strcpy(memory + 7000, "VALUE=given");
	argv[0] = memory + 5000, argv[1] = memory + 5500, argv[2] = memory + 6000, argv[3] = NULL;
	environment[0] = memory + 7000, environment[1] = NULL;
	PROMISE(posix_spawn(&child, memory + 5000, NULL, NULL, argv, environment) == 0);
	PROMISE(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 31);
	child = fork();
	if (child == 0) {
		execve(memory + 5000, argv, environment);
		_exit(1);
	}
	PROMISE(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 31);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
