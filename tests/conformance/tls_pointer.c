/* SPDX-License-Identifier: MIT */
/* A thread-local variable of one thread can be read and written by another through its address. */
#include "promise.h"

static __thread long mine;
static long *address;
static struct gate gate = GATE;

static void *hold(void *unused)
{
	mine = 5;
	address = &mine;
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(mine == 6);
	return unused;
}

int main(void)
{
	pthread_t thread = start(hold, NULL);
	gate_wait(&gate, 1);
	PROMISE(*address == 5 && address != &mine);
	*address = 6;
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
