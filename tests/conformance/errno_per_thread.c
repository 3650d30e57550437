/* SPDX-License-Identifier: MIT */
/* errno is each thread's own. */
#include "promise.h"

static struct gate gate = GATE;

static void *fail(void *unused)
{
	PROMISE(errno == 0);
	PROMISE(close(-1) == -1 && errno == EBADF);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(errno == EBADF);
	return unused;
}

int main(void)
{
	errno = 0;
	pthread_t thread = start(fail, NULL);
	gate_wait(&gate, 1);
	PROMISE(errno == 0);
	PROMISE(open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT);
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
