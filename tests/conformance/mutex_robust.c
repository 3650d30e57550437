/* SPDX-License-Identifier: MIT */
/* The next to lock a robust mutex whose owner ended gets EOWNERDEAD and can make it consistent; if not, it is
 * ENOTRECOVERABLE for ever. */
#include "promise.h"

static pthread_mutex_t mutex;

static void *die_with_it(void *unused)
{
	pthread_mutex_lock(&mutex);
	return unused;
}

static void *exit_with_it(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_exit(unused);
}

static void *lock_and_unlock(void *unused)
{
	PROMISE(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
	return unused;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	struct timespec until = after_ms(CLOCK_REALTIME, 1000);
	pthread_mutexattr_init(&attributes);
	PROMISE(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
	PROMISE(pthread_mutex_init(&mutex, &attributes) == 0);
	in_thread(die_with_it, NULL);
	PROMISE(pthread_mutex_lock(&mutex) == EOWNERDEAD && pthread_mutex_consistent(&mutex) == 0);
	PROMISE(pthread_mutex_unlock(&mutex) == 0);
	in_thread(lock_and_unlock, NULL);
	in_thread(exit_with_it, NULL);
	PROMISE(pthread_mutex_trylock(&mutex) == EOWNERDEAD && pthread_mutex_consistent(&mutex) == 0);
	PROMISE(pthread_mutex_unlock(&mutex) == 0 && pthread_mutex_consistent(&mutex) == EINVAL);
	in_thread(die_with_it, NULL);
	PROMISE(pthread_mutex_timedlock(&mutex, &until) == EOWNERDEAD && pthread_mutex_unlock(&mutex) == 0);
	PROMISE(pthread_mutex_lock(&mutex) == ENOTRECOVERABLE && pthread_mutex_trylock(&mutex) == ENOTRECOVERABLE);
	PROMISE(pthread_mutex_destroy(&mutex) == 0);
	return 0;
}
