/* SPDX-License-Identifier: MIT */
/* pthread_once runs its routine once however many threads come, and none returns before it is done. */
#include "promise.h"

static pthread_once_t control = PTHREAD_ONCE_INIT;
static pthread_barrier_t barrier;
static int runs, done;

static void initialise(void)
{
	runs++;
	sleep_ms(20);
	done = 1;
}

static void *call(void *unused)
{
	pthread_barrier_wait(&barrier);
	PROMISE(pthread_once(&control, initialise) == 0);
	PROMISE(done == 1);
	return unused;
}

int main(void)
{
	pthread_t threads[8];
	pthread_barrier_init(&barrier, NULL, 8);
	for (int i = 0; i < 8; i++)
		threads[i] = start(call, NULL);
	for (int i = 0; i < 8; i++)
		join(threads[i]);
	PROMISE(runs == 1);
	return 0;
}
