/* SPDX-License-Identifier: MIT */
/* Two hundred threads run at the same time. */
#include "promise.h"

enum { COUNT = 200 };

static pthread_barrier_t all;
static int seen[COUNT];

static void *meet(void *argument)
{
	int *mine = argument;
	pthread_barrier_wait(&all);
	*mine = 1;
	pthread_barrier_wait(&all);
	for (int i = 0; i < COUNT; i++)
		PROMISE(seen[i] == 1);
	return argument;
}

int main(void)
{
	pthread_t threads[COUNT];
	pthread_barrier_init(&all, NULL, COUNT);
	for (int i = 0; i < COUNT; i++)
		threads[i] = start(meet, &seen[i]);
	for (int i = 0; i < COUNT; i++)
		PROMISE(join(threads[i]) == &seen[i]);
	return 0;
}
