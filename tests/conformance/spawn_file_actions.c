/* SPDX-License-Identifier: MIT */
/* A spawned child opens, copies and closes what its file actions say, and begins where they say: also when another thread
 * made them, and threads have synchronised since. */
#include "promise.h"

#include <spawn.h>
#include <sys/stat.h>

extern char **environ;

static posix_spawn_file_actions_t actions;
static int answer[2];
static char folder[] = "/tmp/conformance.XXXXXX", file[64];

static void *prepare(void *unused)
{
	snprintf(file, sizeof file, "%s/out", folder);
	PROMISE(posix_spawn_file_actions_init(&actions) == 0);
	PROMISE(posix_spawn_file_actions_addopen(&actions, 5, file, O_WRONLY | O_CREAT, 0600) == 0);
	PROMISE(posix_spawn_file_actions_adddup2(&actions, answer[1], 6) == 0);
	PROMISE(posix_spawn_file_actions_addclose(&actions, answer[1]) == 0);
	PROMISE(posix_spawn_file_actions_addchdir_np(&actions, folder) == 0);
	return unused;
}

static void spawn(void)
{
	char *words[] = {"sh", "-c", "test -f out && echo kept >&5 && pwd >&6", NULL}, line[64] = "";
	struct stat written;
	int status;
	pid_t child;
	PROMISE(posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ) == 0);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	ssize_t length = read(answer[0], line, sizeof line - 1);
	PROMISE(length > 0 && strncmp(line, folder, strlen(folder)) == 0);
	PROMISE(stat(file, &written) == 0 && written.st_size == 5 && unlink(file) == 0);
}

static void *spawn_too(void *unused)
{
	spawn();
	return unused;
}

int main(void)
{
	PROMISE(mkdtemp(folder) && pipe(answer) == 0);
	in_thread(prepare, NULL);
	spawn();
	in_thread(spawn_too, NULL);
	PROMISE(posix_spawn_file_actions_destroy(&actions) == 0 && rmdir(folder) == 0);
	return 0;
}
