/* SPDX-License-Identifier: MIT */
/* pthread_timedjoin_np and pthread_clockjoin_np are ETIMEDOUT in time, and leave the thread joinable. */
#include "promise.h"

static struct gate gate = GATE;

static void *run(void *argument)
{
	gate_wait(&gate, 1);
	return argument;
}

int main(void)
{
	void *value = NULL;
	pthread_t thread = start(run, (void *)3);
	int64_t before = now_ns(CLOCK_MONOTONIC);
	struct timespec until = after_ms(CLOCK_REALTIME, 30);
	PROMISE(pthread_timedjoin_np(thread, &value, &until) == ETIMEDOUT);
	PROMISE(now_ns(CLOCK_MONOTONIC) - before >= 25 * (int64_t)MS);
	until = after_ms(CLOCK_MONOTONIC, 30);
	PROMISE(pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	gate_open(&gate, 1);
	until = after_ms(CLOCK_MONOTONIC, 20000);
	PROMISE(pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &until) == 0 && value == (void *)3);
	return 0;
}
