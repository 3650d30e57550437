/* SPDX-License-Identifier: MIT */
/* Timed condition waits are ETIMEDOUT in time on either clock, with the mutex held again; the clock attribute
 * counts. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *wait_in_vain(void *argument)
{
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER, monotonic;
	pthread_condattr_t attributes;
	clockid_t clock;
	int64_t before = now_ns(CLOCK_MONOTONIC);
	struct timespec until = after_ms(CLOCK_REALTIME, 30), past = {0, 0}, bad = {0, -1};
	pthread_condattr_init(&attributes);
	PROMISE(pthread_condattr_getclock(&attributes, &clock) == 0 && clock == CLOCK_REALTIME);
	PROMISE(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
	PROMISE(pthread_condattr_setclock(&attributes, CLOCK_PROCESS_CPUTIME_ID) == EINVAL);
	PROMISE(pthread_cond_init(&monotonic, &attributes) == 0);
	pthread_mutex_lock(&mutex);
	PROMISE(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
	PROMISE(now_ns(CLOCK_MONOTONIC) - before >= 25 * (int64_t)MS);
	until = after_ms(CLOCK_MONOTONIC, 30);
	PROMISE(pthread_cond_timedwait(&monotonic, &mutex, &until) == ETIMEDOUT);
	until = after_ms(CLOCK_MONOTONIC, 30);
	PROMISE(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	PROMISE(now_ns(CLOCK_MONOTONIC) - before >= 80 * (int64_t)MS);
	PROMISE(pthread_cond_timedwait(&condition, &mutex, &past) == ETIMEDOUT);
	PROMISE(pthread_cond_timedwait(&condition, &mutex, &bad) == EINVAL);
	PROMISE(pthread_mutex_trylock(&mutex) == EBUSY);
	pthread_mutex_unlock(&mutex);
	PROMISE(pthread_cond_destroy(&condition) == 0 && pthread_cond_destroy(&monotonic) == 0);
	return argument;
}

int main(void)
{
	wait_in_vain(NULL);
	in_thread(wait_in_vain, NULL);
	return 0;
}
