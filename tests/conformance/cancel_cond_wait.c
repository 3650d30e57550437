/* SPDX-License-Identifier: MIT */
/* A thread cancelled in a condition wait has the mutex again when its cleanup handlers run. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned;

static void clean(void *argument)
{
	cleaned = pthread_mutex_trylock(argument) == EBUSY;
	pthread_mutex_unlock(argument);
}

static void *run(void *unused)
{
	pthread_mutex_lock(&mutex);
	waiting = 1;
	pthread_cleanup_push(clean, &mutex);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(0);
	return unused;
}

int main(void)
{
	pthread_t thread = start(run, NULL);
	for (int there = 0; !there; sleep_ms(1)) {
		pthread_mutex_lock(&mutex);
		there = waiting;
		pthread_mutex_unlock(&mutex);
	}
	sleep_ms(10);
	pthread_cancel(thread);
	PROMISE(join(thread) == PTHREAD_CANCELED && cleaned);
	PROMISE(pthread_mutex_trylock(&mutex) == 0);
	return 0;
}
