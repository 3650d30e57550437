/* SPDX-License-Identifier: MIT */
/* A recursive mutex is its owner's until it was unlocked as often as locked; others get EBUSY and EPERM. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void *other(void *expected)
{
	int result = pthread_mutex_trylock(&mutex);
	PROMISE(result == (int)(long)expected);
	if (result == 0)
		PROMISE(pthread_mutex_unlock(&mutex) == 0);
	PROMISE(pthread_mutex_unlock(&mutex) == EPERM);
	return NULL;
}

int main(void)
{
	for (int i = 0; i < 5; i++)
		PROMISE(i % 2 ? pthread_mutex_trylock(&mutex) == 0 : pthread_mutex_lock(&mutex) == 0);
	for (int i = 0; i < 5; i++) {
		in_thread(other, (void *)EBUSY);
		PROMISE(pthread_mutex_unlock(&mutex) == 0);
	}
	in_thread(other, NULL);
	PROMISE(pthread_mutex_unlock(&mutex) == EPERM);
	return 0;
}
