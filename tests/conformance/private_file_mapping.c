/* SPDX-License-Identifier: MIT */
/* What threads write to a private file mapping is seen by all threads and never by the file. */
#include "promise.h"

enum { SIZE = 8 * PAGE };

static char *memory;

static void *change(void *unused)
{
	PROMISE(memory[3 * PAGE] == 'f');
	memory[3 * PAGE] = 'x';
	memory[SIZE - 1] = 'y';
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", content[SIZE];
	int fd = mkstemp(name);
	PROMISE(fd >= 0);
	unlink(name);
	memset(content, 'f', SIZE);
	PROMISE(write(fd, content, SIZE) == SIZE);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	PROMISE(memory != MAP_FAILED);
	in_thread(change, NULL);
	PROMISE(memory[3 * PAGE] == 'x' && memory[SIZE - 1] == 'y');
	memory[0] = 'z';
	PROMISE(msync(memory, SIZE, MS_SYNC) == 0);
	PROMISE(munmap(memory, SIZE) == 0);
	PROMISE(pread(fd, content, SIZE, 0) == SIZE);
	for (int i = 0; i < SIZE; i++)
		PROMISE(content[i] == 'f');
	return 0;
}
