/* SPDX-License-Identifier: MIT */
/* What threads write to a shared file mapping reaches the file and every other mapping of it. */
#include "promise.h"

static char *memory;

static void *change(void *unused)
{
	memory[PAGE + 1] = 'x';
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", byte;
	int fd = mkstemp(name);
	unlink(name);
	PROMISE(ftruncate(fd, 2 * PAGE) == 0);
	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *other = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	PROMISE(memory != MAP_FAILED && other != MAP_FAILED);
	in_thread(change, NULL);
	PROMISE(memory[PAGE + 1] == 'x' && other[PAGE + 1] == 'x');
	PROMISE(pread(fd, &byte, 1, PAGE + 1) == 1 && byte == 'x');
	return 0;
}
