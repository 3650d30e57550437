/* SPDX-License-Identifier: MIT */
/* Executes itself once more, in the way that its argument names, and says what it was executed as. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* A file without a name that holds this program; it closes at an exec. */
static int nameless(void)
{
	int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), copy = memfd_create("copy", MFD_CLOEXEC);
	struct stat status;
	fstat(own, &status);
	sendfile(copy, own, NULL, (size_t)status.st_size);
	close(own);
	return copy;
}

/* Descriptors that are open, but for the standard ones; the engine has its own at the top of the range. */
static int inherited(void)
{
	int found = 0;
	for (int fd = 3; fd < 100; fd++)
		found += fcntl(fd, F_GETFD) >= 0;
	return found;
}

int main(int count, char **words)
{
	char *way = words[1], *again[] = {"again", way, "second", NULL}, path[64];
	if (count > 2) {
		printf("%s %s %s, %d descriptors\n", words[0], words[1], words[2], inherited());
		return 4;
	}
	if (strcmp(way, "self") == 0)
		execv("/proc/self/exe", again);
	if (strcmp(way, "thread") == 0)
		execv("/proc/thread-self/exe", again);
	if (strcmp(way, "pid") == 0) {
		snprintf(path, sizeof path, "/proc/%d/exe", getpid());
		execv(path, again);
	}
	if (strcmp(way, "at") == 0)
		execveat(AT_FDCWD, "/proc/self/exe", again, environ, 0);
	if (strcmp(way, "removed") == 0 && unlink(words[0]) == 0)
		execv("/proc/self/exe", again);
	if (strcmp(way, "link") == 0 && symlink("/proc/self/exe", "link") == 0)
		execv("./link", again);
	if (strcmp(way, "nameless") == 0)
		fexecve(nameless(), again, environ);
	if (strcmp(way, "descriptor") == 0) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", nameless());
		execv(path, again);
	}
	perror(way);
	return 9;
}
