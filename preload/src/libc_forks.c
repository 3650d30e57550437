/* SPDX-License-Identifier: MIT */
/*
 * Functions of the C library that fork inside, where nobody stands in front of it: a child made so would share the
 * program's memory with its parent. In process mode they are written anew, as glibc has them, with the program's fork.
 * _Fork runs none of the program's handlers.
 */
#define _GNU_SOURCE
#include "fork.h"
#include "real.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utmp.h>

PTW_EXPORT pid_t _Fork(void) { return ptw_process_mode ? ptw_program_fork_bare() : GLIBC(_Fork)(); }

/* Not whatever somebody put in its place. */
static int open_null(void)
{
	struct stat status;
	int fd = open(_PATH_DEVNULL, O_RDWR);
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3))
		return fd;
	if (fd >= 0) {
		close(fd);
		errno = ENODEV;
	}
	return -1;
}

static int use_null(void)
{
	int fd = open_null();
	if (fd < 0)
		return -1;
	for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++)
		dup2(fd, standard);
	if (fd > STDERR_FILENO)
		close(fd);
	return 0;
}

PTW_EXPORT int daemon(int keep_directory, int keep_files)
{
	if (!ptw_process_mode)
		return GLIBC(daemon)(keep_directory, keep_files);
	pid_t child = fork();
	if (child > 0)
		_exit(0);
	if (child < 0 || setsid() < 0)
		return -1;
	if (!keep_directory)
		(void)!chdir("/");
	return keep_files ? 0 : use_null();
}

PTW_EXPORT int forkpty(int *master, char *name, const struct termios *how, const struct winsize *size)
{
	if (!ptw_process_mode)
		return GLIBC(forkpty)(master, name, how, size);
	int ends[2];
	struct termios how_copy;
	struct winsize size_copy;
	/* what the kernel reads is on the stack: never closed */
	if (how)
		how_copy = *how;
	if (size)
		size_copy = *size;
	if (openpty(&ends[0], &ends[1], name, how ? &how_copy : NULL, size ? &size_copy : NULL) != 0)
		return -1;
	pid_t child = fork();
	if (child == 0) {
		close(ends[0]);
		if (login_tty(ends[1]) != 0)
			_exit(1);
		return 0;
	}
	int error = errno;
	if (child > 0)
		*master = ends[0];
	else
		close(ends[0]);
	close(ends[1]);
	errno = error;
	return child;
}
