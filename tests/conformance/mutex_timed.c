/* SPDX-License-Identifier: MIT */
/* Timed locks are ETIMEDOUT in time on either clock, succeed when the mutex is freed, and reject bad times. */
#include "promise.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *wait_in_vain(void *unused)
{
	int64_t before = now_ns(CLOCK_MONOTONIC);
	struct timespec until = after_ms(CLOCK_REALTIME, 30), bad = {0, 1000000000};
	PROMISE(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
	PROMISE(now_ns(CLOCK_MONOTONIC) - before >= 25 * (int64_t)MS);
	until = after_ms(CLOCK_MONOTONIC, 30);
	PROMISE(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	PROMISE(pthread_mutex_timedlock(&mutex, &bad) == EINVAL);
	PROMISE(pthread_mutex_clocklock(&mutex, 12345, &until) == EINVAL);
	return unused;
}

static void *wait_long(void *unused)
{
	struct timespec until = after_ms(CLOCK_REALTIME, 20000);
	PROMISE(pthread_mutex_timedlock(&mutex, &until) == 0 && pthread_mutex_unlock(&mutex) == 0);
	return unused;
}

int main(void)
{
	pthread_mutex_lock(&mutex);
	in_thread(wait_in_vain, NULL);
	pthread_t thread = start(wait_long, NULL);
	sleep_ms(20);
	pthread_mutex_unlock(&mutex);
	join(thread);
	return 0;
}
