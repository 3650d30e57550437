/* SPDX-License-Identifier: MIT */
/* A limit that a thread sets, by any call, holds for main, for other threads and for threads made afterwards. */
#include "promise.h"

#include <sys/resource.h>

static struct gate gate = GATE;

static void limited_to(rlim_t wanted)
{
	struct rlimit limit;
	PROMISE(prlimit(getpid(), RLIMIT_CORE, NULL, &limit) == 0 && limit.rlim_cur == wanted);
	PROMISE(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == wanted);
}

static void *early(void *unused)
{
	gate_wait(&gate, 1);
	limited_to(4096);
	return unused;
}

static void *look(void *unused)
{
	limited_to(4096);
	return unused;
}

static void *set(void *unused)
{
	struct rlimit limit, before;
	PROMISE(getrlimit(RLIMIT_CORE, &limit) == 0);
	limit.rlim_cur = 8192;
	PROMISE(prlimit(getpid(), RLIMIT_CORE, &limit, &before) == 0);
	limited_to(8192);
	limit.rlim_cur = 4096;
	PROMISE(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, &before) == 0 && before.rlim_cur == 8192);
	PROMISE(prlimit(0, (enum __rlimit_resource)99, &limit, NULL) == -1 && errno == EINVAL);
	return unused;
}

int main(void)
{
	struct rlimit limit;
	PROMISE(getrlimit(RLIMIT_CORE, &limit) == 0);
	limit.rlim_cur = 0;
	if (limit.rlim_max < 8192)
		return 0; /* nothing to set */
	pthread_t thread = start(early, NULL);
	in_thread(set, NULL);
	limited_to(4096);
	gate_open(&gate, 1);
	join(thread);
	in_thread(look, NULL);
	return 0;
}
