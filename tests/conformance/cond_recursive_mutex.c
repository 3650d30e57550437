/* SPDX-License-Identifier: MIT */
/* A condition wait gives a recursive and an error-checking mutex free, and their owner has them again after. */
#include "promise.h"

static pthread_mutex_t mutexes[2] = {PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ready;

static void *wake(void *mutex)
{
	PROMISE(pthread_mutex_lock(mutex) == 0);
	ready = 1;
	PROMISE(pthread_cond_signal(&condition) == 0 && pthread_mutex_unlock(mutex) == 0);
	return NULL;
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		ready = 0;
		PROMISE(pthread_mutex_lock(&mutexes[i]) == 0);
		pthread_t thread = start(wake, &mutexes[i]);
		while (!ready)
			PROMISE(pthread_cond_wait(&condition, &mutexes[i]) == 0);
		PROMISE(pthread_mutex_unlock(&mutexes[i]) == 0 && pthread_mutex_unlock(&mutexes[i]) == EPERM);
		join(thread);
	}
	return 0;
}
