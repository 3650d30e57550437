/* SPDX-License-Identifier: MIT */
/* A local of a thread can be read and written by its creator, and by a third thread, while it runs. */
#include "promise.h"

static long *local_of_other;
static struct gate gate = GATE;

static void *own(void *unused)
{
	long local = 10;
	local_of_other = &local;
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(*(volatile long *)&local == 12);
	return unused;
}

static void *add(void *unused)
{
	++*local_of_other;
	return unused;
}

int main(void)
{
	pthread_t thread = start(own, NULL);
	gate_wait(&gate, 1);
	++*local_of_other;
	in_thread(add, NULL);
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
