/* SPDX-License-Identifier: MIT */
/* Starts `env` by one of the functions there are, with an LD_PRELOAD of its own. Arguments: which; the LD_PRELOAD. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
	char *program = "/usr/bin/env", *const arguments[] = {program, NULL};
	int status = 0;
	pid_t child;

	if (argc < 3)
		return 2;
	setenv("LD_PRELOAD", argv[2], 1);
	if (!strcmp(argv[1], "execve"))
		execve(program, arguments, environ);
	else if (!strcmp(argv[1], "execv"))
		execv(program, arguments);
	else if (!strcmp(argv[1], "execvp"))
		execvp("env", arguments);
	else if (!strcmp(argv[1], "execvpe"))
		execvpe("env", arguments, environ);
	else if (!strcmp(argv[1], "execl"))
		execl(program, program, (char *)NULL);
	else if (!strcmp(argv[1], "execlp"))
		execlp("env", program, (char *)NULL);
	else if (!strcmp(argv[1], "execle"))
		execle(program, program, (char *)NULL, environ);
	else if (!strcmp(argv[1], "posix_spawn") && !posix_spawn(&child, program, NULL, NULL, arguments, environ))
		return waitpid(child, &status, 0) == child ? status : 3;
	else if (!strcmp(argv[1], "posix_spawnp") && !posix_spawnp(&child, "env", NULL, NULL, arguments, environ))
		return waitpid(child, &status, 0) == child ? status : 3;
	else if (!strcmp(argv[1], "vfork") && !(child = vfork()))
		_exit(execve(program, arguments, environ));
	else if (!strcmp(argv[1], "vfork") && child > 0)
		return waitpid(child, &status, 0) == child ? status : 3;
	return 4;
}
