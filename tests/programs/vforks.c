/* SPDX-License-Identifier: MIT */
/* vforks [thread]: children of vfork and posix_spawn, from the first thread (or from another one, too), say whether
 * their parent waited for them, whether it sees what they wrote, and what a spawn that fails tells. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int written;

static int spoke(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&ready, 1, 0) == 1 && read(fd, &byte, 1) == 1;
}

static void *make_children(void *name)
{
	int ends[2], status = 0;
	char local[64] = "untouched";
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return NULL;
	written = 0;
	child = vfork();
	if (child == 0) {
		usleep(100000);
		written = 1;
		strcpy(local, "written");
		if (write(ends[1], "x", 1) != 1)
			_exit(8);
		_exit(3);
	}
	printf("%s: waited %d\n", (char *)name, spoke(ends[0]));
	printf("%s: shared %d %s\n", (char *)name, written, local);
	waitpid(child, &status, 0);
	printf("%s: ended %d\n", (char *)name, WEXITSTATUS(status));
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "/nowhere/none" : "/bin/true";
		char *words[] = { "name", NULL };
		int error = posix_spawn(&child, path, NULL, NULL, words, environ);

		printf("%s: spawned %s\n", (char *)name, error ? strerror(error) : "well");
		if (!error)
			waitpid(child, &status, 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	make_children("first");
	if (argc > 1 && !strcmp(argv[1], "thread")) {
		if (pthread_create(&thread, NULL, make_children, "second"))
			return 1;
		pthread_join(thread, NULL);
		make_children("first again");
	}
	return 0;
}
