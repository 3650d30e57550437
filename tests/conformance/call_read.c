/* SPDX-License-Identifier: MIT */
/* read, pread, readv and preadv fill fresh pages, and readv's list may lie in one. */
#include "fresh.h"

#include <sys/uio.h>

static int fd;
static char content[FRESH_ROOM];

static void body(char *memory)
{
	PROMISE(pread(fd, memory, FRESH_ROOM, 0) == FRESH_ROOM && memcmp(memory, content, FRESH_ROOM) == 0);
}

static void body_read(char *memory)
{
	PROMISE(lseek(fd, 0, SEEK_SET) == 0);
	PROMISE(read(fd, memory, 5000) == 5000 && memcmp(memory, content, 5000) == 0);
}

static void body_vector(char *memory)
{
	struct iovec *list = (struct iovec *)memory;
	list[0] = (struct iovec){memory + 1000, 100};
	list[1] = (struct iovec){memory + 4200, 3000};
	PROMISE(preadv(fd, list, 2, 10) == 3100);
	PROMISE(memcmp(memory + 1000, content + 10, 100) == 0 && memcmp(memory + 4200, content + 110, 3000) == 0);
	PROMISE(lseek(fd, 3, SEEK_SET) == 3 && readv(fd, list, 2) == 3100 && memory[1000] == content[3]);
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX";
	fd = mkstemp(name);
	unlink(name);
	for (int i = 0; i < FRESH_ROOM; i++)
		content[i] = (char)(i * 11 + (i >> 8));
	PROMISE(write(fd, content, FRESH_ROOM) == FRESH_ROOM);
	with_fresh_memory(body);
	with_fresh_memory(body_read);
	with_fresh_memory(body_vector);
	return 0;
}
