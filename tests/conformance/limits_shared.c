/* SPDX-License-Identifier: MIT */
/* A resource limit that one thread sets holds for all. */
#include "promise.h"

#include <sys/resource.h>

static struct gate gate = GATE;

static void *early(void *unused)
{
	struct rlimit limit;
	gate_wait(&gate, 1);
	PROMISE(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 64);
	int fd = dup(0);
	PROMISE(fd >= 0 && dup2(fd, 70) == -1 && errno == EBADF);
	return unused;
}

int main(void)
{
	struct rlimit limit;
	pthread_t thread = start(early, NULL);
	PROMISE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 64;
	PROMISE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	gate_open(&gate, 1);
	join(thread);
	return 0;
}
