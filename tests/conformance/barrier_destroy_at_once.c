/* SPDX-License-Identifier: MIT */
/* The serial thread may destroy a barrier, and free its memory, as soon as it returns from it. */
#include "promise.h"

static void *meet(void *barrier)
{
	if (pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
		PROMISE(pthread_barrier_destroy(barrier) == 0);
		memset(barrier, 0xff, sizeof(pthread_barrier_t));
		free(barrier);
	}
	return NULL;
}

int main(void)
{
	for (int round = 0; round < 50; round++) {
		pthread_t threads[3];
		pthread_barrier_t *barrier = malloc(sizeof *barrier);
		PROMISE(pthread_barrier_init(barrier, NULL, 3) == 0);
		for (int i = 0; i < 3; i++)
			threads[i] = start(meet, barrier);
		for (int i = 0; i < 3; i++)
			join(threads[i]);
	}
	return 0;
}
