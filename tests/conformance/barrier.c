/* SPDX-License-Identifier: MIT */
/* A barrier lets all go when all are there, tells one of them that it is the serial one, and serves round after
 * round. */
#include "promise.h"

enum { COUNT = 5, ROUNDS = 500 };

static pthread_barrier_t barrier;
static int arrived[ROUNDS], serial[ROUNDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *meet(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&mutex);
		arrived[round]++;
		pthread_mutex_unlock(&mutex);
		int result = pthread_barrier_wait(&barrier);
		PROMISE(arrived[round] == COUNT);
		PROMISE(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
		if (result) {
			pthread_mutex_lock(&mutex);
			serial[round]++;
			pthread_mutex_unlock(&mutex);
		}
	}
	return unused;
}

int main(void)
{
	pthread_t threads[COUNT];
	PROMISE(pthread_barrier_init(&barrier, NULL, 0) == EINVAL);
	PROMISE(pthread_barrier_init(&barrier, NULL, COUNT) == 0);
	for (int i = 0; i < COUNT; i++)
		threads[i] = start(meet, NULL);
	for (int i = 0; i < COUNT; i++)
		join(threads[i]);
	for (int round = 0; round < ROUNDS; round++)
		PROMISE(serial[round] == 1);
	PROMISE(pthread_barrier_destroy(&barrier) == 0);
	return 0;
}
