/* SPDX-License-Identifier: MIT */
/* stat, lstat, fstat, fstatat, statx, statfs, access and utimensat take paths and results in fresh pages. */
#include "fresh.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

static char name[] = "/tmp/conformance.XXXXXX";
static int fd;

static void body(char *memory)
{
	struct stat *status = (struct stat *)(memory + 4000);
	strcpy(memory, name);
	PROMISE(stat(memory, status) == 0 && status->st_size == 5);
	memset(status, 0, sizeof *status);
	PROMISE(lstat(memory, status) == 0 && S_ISREG(status->st_mode));
	PROMISE(fstat(fd, status) == 0 && fstatat(AT_FDCWD, memory, status, 0) == 0 && status->st_size == 5);
	PROMISE(access(memory, R_OK) == 0);
}

static void body_more(char *memory)
{
	struct statx *extended = (struct statx *)(memory + 3900);
	strcpy(memory, name);
	PROMISE(statx(AT_FDCWD, memory, 0, STATX_SIZE, extended) == 0 && extended->stx_size == 5);
	PROMISE(statfs(memory, (struct statfs *)(memory + 5000)) == 0);
	PROMISE(statvfs(memory, (struct statvfs *)(memory + 6000)) == 0);
	struct timespec *times = (struct timespec *)(memory + 7000);
	times[0] = times[1] = (struct timespec){1000000, 5};
	PROMISE(utimensat(AT_FDCWD, memory, times, 0) == 0 && futimens(fd, times) == 0);
	PROMISE(stat(memory, (struct stat *)(memory + 200)) == 0 && ((struct stat *)(memory + 200))->st_mtime == 1000000);
}

int main(void)
{
	fd = mkstemp(name);
	PROMISE(write(fd, "hello", 5) == 5);
	with_fresh_memory(body);
	with_fresh_memory(body_more);
	unlink(name);
	return 0;
}
