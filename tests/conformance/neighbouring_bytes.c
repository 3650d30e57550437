/* SPDX-License-Identifier: MIT */
/* Threads that write neighbouring bytes of one page, at the same time, lose none of each other's writes. */
#include "promise.h"

enum { COUNT = 8, TIMES = 20000 };

static unsigned char bytes[PAGE];
static pthread_barrier_t barrier;

static void *write_mine(void *argument)
{
	long id = (long)argument;
	pthread_barrier_wait(&barrier);
	for (int round = 0; round < TIMES; round++)
		for (long i = id; i < PAGE; i += COUNT * 64)
			((volatile unsigned char *)bytes)[i]++;
	return NULL;
}

int main(void)
{
	pthread_t threads[COUNT];
	pthread_barrier_init(&barrier, NULL, COUNT);
	for (long i = 0; i < COUNT; i++)
		threads[i] = start(write_mine, (void *)i);
	for (int i = 0; i < COUNT; i++)
		join(threads[i]);
	for (long i = 0; i < PAGE; i++)
		PROMISE(bytes[i] == (i % (COUNT * 64) < COUNT ? (unsigned char)TIMES : 0));
	return 0;
}
