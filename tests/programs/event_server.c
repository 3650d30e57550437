// SPDX-License-Identifier: MIT
/*
 * Makes events when it is told to, for tests of filters: reads commands of one byte from stdin, answers each with a
 * byte on stdout when it has done it. Those calls are read and write; of the others below the tests know who made them.
 *
 *   t N    events numbered N: getppid with N as a (meaningless) argument, a write of N bytes to /dev/null, a signal to
 *          itself, a dup
 *   c NAME comm becomes NAME (15 bytes, padded with NULs)
 *   x      exec this program again by the path that follows (a byte of length, then bytes), its words kept
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int all_of(int fd, void *to, size_t size)
{
	return read(fd, to, size) == (ssize_t)size;
}

static void events(int out, uint16_t number)
{
	static char bytes[UINT16_MAX];

	syscall(SYS_getppid, number);
	if (write(out, bytes, number) != number)
		_exit(3);
	syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), SIGURG);
	close(dup(out));
}

int main(int argc, char **argv)
{
	int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	char command;

	(void)argc;
	signal(SIGURG, SIG_IGN);
	if (write(1, "r", 1) != 1)
		return 2;
	while (all_of(0, &command, 1)) {
		char name[16] = {0};
		char path[256] = {0};
		uint16_t number;
		uint8_t size;

		if (command == 't') {
			if (!all_of(0, &number, sizeof(number)))
				return 2;
			events(out, number);
		} else if (command == 'c') {
			if (!all_of(0, name, 15) || prctl(PR_SET_NAME, name))
				return 2;
		} else if (command == 'x') {
			if (!all_of(0, &size, 1) || !all_of(0, path, size))
				return 2;
			execv(path, argv);
			return 2;
		}
		if (write(1, "d", 1) != 1)
			return 2;
	}
	return 0;
}
