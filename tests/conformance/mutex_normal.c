/* SPDX-License-Identifier: MIT */
/* A normal mutex excludes; trylock is EBUSY while it is held, by another thread and by oneself. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void *add(void *unused)
{
	for (int i = 0; i < 10000; i++) {
		pthread_mutex_lock(&mutex);
		counter++;
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

static void *try(void *expected)
{
	PROMISE(pthread_mutex_trylock(&mutex) == (int)(long)expected);
	if (!expected)
		pthread_mutex_unlock(&mutex);
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		threads[i] = start(add, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(counter == 40000);
	pthread_mutex_lock(&mutex);
	PROMISE(pthread_mutex_trylock(&mutex) == EBUSY);
	in_thread(try, (void *)EBUSY);
	pthread_mutex_unlock(&mutex);
	in_thread(try, NULL);
	return 0;
}
