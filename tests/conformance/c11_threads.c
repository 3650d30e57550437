/* SPDX-License-Identifier: MIT */
/* C11 threads, mutexes, conditions, keys and call_once do what their POSIX counterparts do. */
#include "promise.h"

#include <threads.h>

static mtx_t mutex;
static cnd_t changed;
static tss_t key;
static once_flag flag = ONCE_FLAG_INIT;
static int total, initialised, destroyed, opened;
static thread_local int mine = 3;

static void initialise(void) { initialised++; }

static void destroy(void *value)
{
	mtx_lock(&mutex);
	destroyed += *(int *)value;
	mtx_unlock(&mutex);
}

static int run(void *argument)
{
	static int one = 1;
	call_once(&flag, initialise);
	PROMISE(mine == 3 && tss_get(key) == NULL && tss_set(key, &one) == thrd_success);
	mine = 4;
	mtx_lock(&mutex);
	while (!opened)
		cnd_wait(&changed, &mutex);
	total += (int)(intptr_t)argument;
	mtx_unlock(&mutex);
	if (argument == (void *)2)
		thrd_exit(22);
	return (int)(intptr_t)argument * 10;
}

int main(void)
{
	thrd_t threads[3];
	int result;
	struct timespec until = after_ms(CLOCK_REALTIME, 10);
	PROMISE(mtx_init(&mutex, mtx_timed) == thrd_success && cnd_init(&changed) == thrd_success);
	PROMISE(tss_create(&key, destroy) == thrd_success);
	for (intptr_t i = 0; i < 3; i++)
		PROMISE(thrd_create(&threads[i], run, (void *)(i + 1)) == thrd_success);
	mtx_lock(&mutex);
	PROMISE(mtx_trylock(&mutex) == thrd_busy && mtx_timedlock(&mutex, &until) == thrd_timedout);
	opened = 1;
	cnd_broadcast(&changed);
	mtx_unlock(&mutex);
	for (int i = 0; i < 3; i++) {
		PROMISE(thrd_join(threads[i], &result) == thrd_success);
		PROMISE(result == (i == 1 ? 22 : (i + 1) * 10));
	}
	PROMISE(total == 6 && initialised == 1 && destroyed == 3 && mine == 3);
	PROMISE(thrd_equal(thrd_current(), thrd_current()));
	return 0;
}
