/* SPDX-License-Identifier: MIT */
/* Priority-inheriting and adaptive mutexes exclude, and tell their attributes. */
#include "promise.h"

static pthread_mutex_t mutex;
static long counter;

static void *add(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		PROMISE(pthread_mutex_lock(&mutex) == 0);
		counter++;
		PROMISE(pthread_mutex_unlock(&mutex) == 0);
	}
	return unused;
}

static void check(const pthread_mutexattr_t *attributes)
{
	pthread_t threads[3];
	PROMISE(pthread_mutex_init(&mutex, attributes) == 0);
	counter = 0;
	for (int i = 0; i < 3; i++)
		threads[i] = start(add, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	PROMISE(counter == 6000 && pthread_mutex_destroy(&mutex) == 0);
}

int main(void)
{
	pthread_mutexattr_t attributes;
	int protocol;
	pthread_mutexattr_init(&attributes);
	PROMISE(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
	PROMISE(pthread_mutexattr_getprotocol(&attributes, &protocol) == 0 && protocol == PTHREAD_PRIO_INHERIT);
	check(&attributes);
	pthread_mutexattr_init(&attributes);
	PROMISE(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP) == 0);
	check(&attributes);
	return 0;
}
