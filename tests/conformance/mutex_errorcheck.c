/* SPDX-License-Identifier: MIT */
/* An error-checking mutex is EDEADLK to its owner and EPERM to others; so is a statically initialised one. */
#include "promise.h"

static void *not_owner(void *mutex)
{
	PROMISE(pthread_mutex_unlock(mutex) == EPERM && pthread_mutex_trylock(mutex) == EBUSY);
	return NULL;
}

static void check(pthread_mutex_t *mutex)
{
	PROMISE(pthread_mutex_unlock(mutex) == EPERM);
	PROMISE(pthread_mutex_lock(mutex) == 0 && pthread_mutex_lock(mutex) == EDEADLK);
	in_thread(not_owner, mutex);
	PROMISE(pthread_mutex_unlock(mutex) == 0 && pthread_mutex_unlock(mutex) == EPERM);
}

int main(void)
{
	static pthread_mutex_t given = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_mutex_t mutex;
	pthread_mutexattr_t attributes;
	int type;
	pthread_mutexattr_init(&attributes);
	PROMISE(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0);
	PROMISE(pthread_mutexattr_gettype(&attributes, &type) == 0 && type == PTHREAD_MUTEX_ERRORCHECK);
	PROMISE(pthread_mutex_init(&mutex, &attributes) == 0);
	check(&mutex);
	check(&given);
	PROMISE(pthread_mutex_destroy(&mutex) == 0);
	PROMISE(pthread_mutexattr_settype(&attributes, 99) == EINVAL);
	return 0;
}
