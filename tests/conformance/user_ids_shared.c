/* SPDX-License-Identifier: MIT */
/* A change of the effective group by one thread is a change for all (glibc tells the others). */
#include "promise.h"

static struct gate gate = GATE;

static void *early(void *group)
{
	gate_wait(&gate, 1);
	PROMISE(getegid() == (gid_t)(long)group);
	return NULL;
}

int main(void)
{
	gid_t mine = getegid(), group = geteuid() == 0 ? 12345 : mine;
	pthread_t thread = start(early, (void *)(long)group);
	PROMISE(setegid(group) == 0);
	gate_open(&gate, 1);
	join(thread);
	PROMISE(setegid(mine) == 0);
	return 0;
}
