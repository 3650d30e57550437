/* SPDX-License-Identifier: MIT */
/* A read that gives fewer bytes than there is room leaves the rest of the memory as it was, and a failed one
 * all of it. */
#include "fresh.h"

static int ends[2];

static void body(char *memory)
{
	PROMISE(write(ends[1], "abc", 3) == 3);
	memset(memory + 1, 'k', 10);
	PROMISE(read(ends[0], memory, FRESH_ROOM) == 3 && memcmp(memory, "abckkkkkkkk", 11) == 0);
	PROMISE(read(ends[0], memory, FRESH_ROOM) == -1 && errno == EAGAIN && memcmp(memory, "abckkkkkkkk", 11) == 0);
	PROMISE(read(-1, memory, 10) == -1 && errno == EBADF);
}

int main(void)
{
	PROMISE(pipe2(ends, O_NONBLOCK) == 0);
	with_fresh_memory(body);
	return 0;
}
