/* SPDX-License-Identifier: MIT */
/* Destroying a held mutex is EBUSY, a free one 0; memory of destroyed mutexes can be used for others at once. */
#include "promise.h"

static void *lock_it(void *mutex)
{
	PROMISE(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
	return NULL;
}

int main(void)
{
	pthread_mutex_t mutex;
	pthread_mutexattr_t attributes;
	pthread_mutex_init(&mutex, NULL);
	pthread_mutex_lock(&mutex);
	PROMISE(pthread_mutex_destroy(&mutex) == EBUSY);
	pthread_mutex_unlock(&mutex);
	PROMISE(pthread_mutex_destroy(&mutex) == 0);
	for (int i = 0; i < 200; i++) {
		pthread_mutex_t *one = malloc(sizeof *one);
		pthread_mutexattr_init(&attributes);
		pthread_mutexattr_settype(&attributes, i % 3);
		PROMISE(pthread_mutex_init(one, &attributes) == 0);
		if (i % 20 == 0)
			in_thread(lock_it, one);
		lock_it(one);
		PROMISE(pthread_mutex_destroy(one) == 0);
		memset(one, 0xff, sizeof *one);
		free(one);
	}
	return 0;
}
