/* SPDX-License-Identifier: MIT */
/* A thread that locks a normal mutex twice waits for ever.
 *
 * Ends: SIGALRM */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *lock_twice(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_lock(&mutex);
	broken("the second lock never returns", __func__, __LINE__);
	return unused;
}

int main(void)
{
	alarm(1);
	in_thread(lock_twice, NULL);
	return 0;
}
