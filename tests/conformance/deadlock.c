/* SPDX-License-Identifier: MIT */
/* A deadlock stays a deadlock: two threads that lock in opposite order never get on.
 *
 * Ends: SIGALRM */
#include "promise.h"

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

static void *lock_both(void *argument)
{
	pthread_mutex_t *first = argument ? &one : &two, *second = argument ? &two : &one;
	pthread_mutex_lock(first);
	pthread_barrier_wait(&barrier);
	pthread_mutex_lock(second);
	broken("neither thread gets both", __func__, __LINE__);
	return NULL;
}

int main(void)
{
	pthread_barrier_init(&barrier, NULL, 2);
	alarm(1);
	pthread_t thread = start(lock_both, &one);
	start(lock_both, NULL);
	join(thread);
	return 0;
}
