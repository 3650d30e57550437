// SPDX-License-Identifier: MIT
/* Executes its first argument, whose path is in a page that is not present when the call is made. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *words[] = {"program", NULL};
	char *page;
	int fd;

	if (argc < 2)
		return 2;
	fd = open("path", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || write(fd, argv[1], strlen(argv[1]) + 1) < 0)
		return 3;
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED || madvise(page, 4096, MADV_DONTNEED))
		return 4;
	execv(page, words);
	return 5;
}
