/* SPDX-License-Identifier: MIT */
/* A descriptor that one thread opens, duplicates or closes is so for all, also for threads that run already; so
 * are offsets. */
#include "promise.h"

static int fd, copy;
static struct gate gate = GATE;

static void *early(void *unused)
{
	char byte;
	gate_wait(&gate, 1);
	PROMISE(read(fd, &byte, 1) == 1 && byte == 'a');
	PROMISE(dup2(fd, 200) == 200);
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(read(fd, &byte, 1) == -1 && errno == EBADF);
	PROMISE(read(copy, &byte, 1) == 1 && byte == 'c');
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", byte;
	pthread_t thread = start(early, NULL);
	fd = mkstemp(name);
	unlink(name);
	PROMISE(write(fd, "abcd", 4) == 4 && lseek(fd, 0, SEEK_SET) == 0);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(read(200, &byte, 1) == 1 && byte == 'b');
	copy = dup(fd);
	PROMISE(close(fd) == 0);
	gate_open(&gate, 3);
	join(thread);
	return 0;
}
