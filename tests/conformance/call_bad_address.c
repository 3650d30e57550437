/* SPDX-License-Identifier: MIT */
/* Addresses that are really bad are still EFAULT. */
#include "promise.h"

#include <sys/stat.h>

static void *bad(void *unused)
{
	int fd = open("/dev/zero", O_RDONLY);
	char *memory = untouched(2);
	char *volatile nowhere = (char *)0x10;
	PROMISE(munmap(memory + PAGE, PAGE) == 0);
	PROMISE(read(fd, nowhere, 10) == -1 && errno == EFAULT);
	PROMISE(read(fd, memory + PAGE, 10) == -1 && errno == EFAULT);
	PROMISE(stat(nowhere, (struct stat *)memory) == -1 && errno == EFAULT);
	PROMISE(mprotect(memory, PAGE, PROT_READ) == 0);
	PROMISE(read(fd, memory, 10) == -1 && errno == EFAULT);
	close(fd);
	return unused;
}

int main(void)
{
	bad(NULL);
	in_thread(bad, NULL);
	return 0;
}
