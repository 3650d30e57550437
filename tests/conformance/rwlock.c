/* SPDX-License-Identifier: MIT */
/* Readers share a rwlock, a writer has it alone; try, timed and error returns are as they should be. */
#include "promise.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static long value[2];

static void *share(void *unused)
{
	PROMISE(pthread_rwlock_rdlock(&lock) == 0);
	pthread_barrier_wait(&barrier);
	PROMISE(pthread_rwlock_trywrlock(&lock) == EBUSY && pthread_rwlock_tryrdlock(&lock) == 0);
	pthread_barrier_wait(&barrier);
	PROMISE(pthread_rwlock_unlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0);
	return unused;
}

static void *blocked(void *unused)
{
	struct timespec until = after_ms(CLOCK_REALTIME, 20), later = after_ms(CLOCK_MONOTONIC, 40);
	PROMISE(pthread_rwlock_tryrdlock(&lock) == EBUSY && pthread_rwlock_trywrlock(&lock) == EBUSY);
	PROMISE(pthread_rwlock_timedrdlock(&lock, &until) == ETIMEDOUT);
	PROMISE(pthread_rwlock_timedwrlock(&lock, &until) == ETIMEDOUT);
	PROMISE(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &later) == ETIMEDOUT);
	PROMISE(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &later) == ETIMEDOUT);
	return unused;
}

static void *mixed(void *argument)
{
	for (int i = 0; i < 3000; i++)
		if (argument) {
			pthread_rwlock_wrlock(&lock);
			value[0]++, value[1]++;
			pthread_rwlock_unlock(&lock);
		} else {
			pthread_rwlock_rdlock(&lock);
			PROMISE(value[0] == value[1]);
			pthread_rwlock_unlock(&lock);
		}
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 3; i++)
		threads[i] = start(share, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	PROMISE(pthread_rwlock_wrlock(&lock) == 0);
	PROMISE(pthread_rwlock_wrlock(&lock) == EDEADLK && pthread_rwlock_rdlock(&lock) == EDEADLK);
	in_thread(blocked, NULL);
	PROMISE(pthread_rwlock_unlock(&lock) == 0);
	for (int i = 0; i < 4; i++)
		threads[i] = start(mixed, i < 2 ? &lock : NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(value[0] == 6000 && pthread_rwlock_destroy(&lock) == 0);
	return 0;
}
