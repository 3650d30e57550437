/* SPDX-License-Identifier: MIT */
/* Unnamed semaphores count; trywait is EAGAIN, timed waits ETIMEDOUT, too much EOVERFLOW, a bad value EINVAL. */
#include "promise.h"

#include <limits.h>
#include <semaphore.h>

static sem_t items, done;
static int sum;

static void *consume(void *unused)
{
	for (int i = 0; i < 1000; i++) {
		PROMISE(sem_wait(&items) == 0);
		sum++;
		PROMISE(sem_post(&done) == 0);
	}
	return unused;
}

int main(void)
{
	int value;
	struct timespec until = after_ms(CLOCK_REALTIME, 20);
	PROMISE(sem_init(&items, 0, SEM_VALUE_MAX + 1u) == -1 && errno == EINVAL);
	PROMISE(sem_init(&items, 0, 0) == 0 && sem_init(&done, 0, SEM_VALUE_MAX) == 0);
	PROMISE(sem_post(&done) == -1 && errno == EOVERFLOW && sem_destroy(&done) == 0 && sem_init(&done, 0, 0) == 0);
	PROMISE(sem_trywait(&items) == -1 && errno == EAGAIN);
	PROMISE(sem_timedwait(&items, &until) == -1 && errno == ETIMEDOUT);
	until = after_ms(CLOCK_MONOTONIC, 20);
	PROMISE(sem_clockwait(&items, CLOCK_MONOTONIC, &until) == -1 && errno == ETIMEDOUT);
	pthread_t thread = start(consume, NULL);
	for (int i = 0; i < 1000; i++) {
		PROMISE(sem_post(&items) == 0);
		if (i % 3 == 0)
			PROMISE(sem_wait(&done) == 0);
	}
	join(thread);
	PROMISE(sum == 1000 && sem_getvalue(&done, &value) == 0 && value == 666);
	return 0;
}
