// SPDX-License-Identifier: MIT
/* Calls with paths of every kind, each once; results do not matter. Runs in a folder of its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *filled(size_t size)
{
	char *text = malloc(size + 1);

	memset(text, 'p', size);
	text[size] = '\0';
	return text;
}

int main(void)
{
	char *page;
	int fd;

	syscall(SYS_mkdir, "folder", 0700);
	syscall(SYS_rename, "folder", "renamed");
	syscall(SYS_renameat2, AT_FDCWD, "renamed", AT_FDCWD, "again", 0);
	syscall(SYS_symlinkat, "target", AT_FDCWD, "name");
	syscall(SYS_linkat, AT_FDCWD, "name", AT_FDCWD, "second", 0);
	syscall(SYS_link, "missing", "third");
	syscall(SYS_mount, "none", "/nowhere/at/all", "tmpfs", 0, NULL);
	syscall(SYS_access, "\xff\xfe name \x01", 0);
	syscall(SYS_access, "", 0);
	syscall(SYS_access, filled(4094), 0);	/* fits with its NUL */
	syscall(SYS_access, filled(4095), 0);	/* the longest that fits */
	syscall(SYS_access, filled(4096), 0);	/* ENAMETOOLONG from here on */
	syscall(SYS_access, filled(9000), 0);
	syscall(SYS_link, filled(4095), filled(4095));
	syscall(SYS_utimensat, AT_FDCWD, NULL, NULL, 0);
	syscall(SYS_access, (char *)16, 0);

	/* a path in a page of a file that is not present when the call is made */
	fd = open("text", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || write(fd, "paged out", 10) != 10 || fsync(fd))
		return 2;
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return 3;
	madvise(page, 4096, MADV_DONTNEED);
	syscall(SYS_access, page, 0);
	madvise(page, 4096, MADV_DONTNEED);
	syscall(SYS_link, page, "present");
	return 0;
}
