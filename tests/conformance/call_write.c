/* SPDX-License-Identifier: MIT */
/* write, pwrite, writev and pwritev take their bytes from pages that another thread wrote. */
#include "fresh.h"

#include <sys/uio.h>

static int fd;

static void *fill(void *memory)
{
	memset(memory, 'w', FRESH_ROOM);
	return NULL;
}

static void body(char *memory)
{
	char *check = malloc(FRESH_ROOM), *list_memory = untouched(1);
	in_thread(fill, memory);
	PROMISE(pwrite(fd, memory, FRESH_ROOM, 0) == FRESH_ROOM);
	PROMISE(pread(fd, check, FRESH_ROOM, 0) == FRESH_ROOM && memcmp(check, memory, FRESH_ROOM) == 0);
	struct iovec *list = (struct iovec *)list_memory;
	list[0] = (struct iovec){memory, 100};
	list[1] = (struct iovec){memory + 4000, 300};
	PROMISE(pwritev(fd, list, 2, 50) == 400 && lseek(fd, 0, SEEK_SET) == 0 && writev(fd, list, 2) == 400);
	PROMISE(lseek(fd, 0, SEEK_SET) == 0 && write(fd, memory, 5000) == 5000);
	free(check);
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX";
	fd = mkstemp(name);
	unlink(name);
	with_fresh_memory(body);
	return 0;
}
