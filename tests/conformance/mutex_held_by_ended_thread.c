/* SPDX-License-Identifier: MIT */
/* A normal mutex stays held when its owner ends: others get EBUSY and time out. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *end_with_it(void *unused)
{
	pthread_mutex_lock(&mutex);
	return unused;
}

int main(void)
{
	struct timespec until = after_ms(CLOCK_REALTIME, 30);
	in_thread(end_with_it, NULL);
	PROMISE(pthread_mutex_trylock(&mutex) == EBUSY);
	PROMISE(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
	return 0;
}
