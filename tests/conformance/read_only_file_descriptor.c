/* SPDX-License-Identifier: MIT */
/* A private writable mapping of a file that is open for reading only is legal, and an offset in it is kept. */
#include "promise.h"

static char *memory;

static void *change(void *unused)
{
	PROMISE(memory[0] == 'b');
	memory[0] = 'c';
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", content[2 * PAGE];
	int fd = mkstemp(name);
	memset(content, 'a', PAGE);
	memset(content + PAGE, 'b', PAGE);
	PROMISE(write(fd, content, 2 * PAGE) == 2 * PAGE && close(fd) == 0);
	fd = open(name, O_RDONLY);
	memory = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
	PROMISE(memory != MAP_FAILED && close(fd) == 0 && unlink(name) == 0);
	in_thread(change, NULL);
	PROMISE(memory[0] == 'c' && memory[1] == 'b' && memory[PAGE - 1] == 'b');
	return 0;
}
