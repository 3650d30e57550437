/* SPDX-License-Identifier: MIT */
/* With the default kind, new readers pass a waiting writer; with the writer-preferring kind they wait behind
 * it. */
#include "promise.h"

static pthread_rwlock_t lock;
static int wrote;

static void *write_it(void *unused)
{
	pthread_rwlock_wrlock(&lock);
	wrote = 1;
	pthread_rwlock_unlock(&lock);
	return unused;
}

static void *read_it(void *unused)
{
	(void)unused;
	struct timespec until = after_ms(CLOCK_REALTIME, 50);
	int result = pthread_rwlock_timedrdlock(&lock, &until);
	if (result == 0)
		pthread_rwlock_unlock(&lock);
	return (void *)(long)result;
}

static long reader_behind_writer(int kind)
{
	pthread_rwlockattr_t attributes;
	int told;
	pthread_rwlockattr_init(&attributes);
	PROMISE(pthread_rwlockattr_setkind_np(&attributes, kind) == 0);
	PROMISE(pthread_rwlockattr_getkind_np(&attributes, &told) == 0 && told == kind);
	PROMISE(pthread_rwlock_init(&lock, &attributes) == 0);
	wrote = 0;
	pthread_rwlock_rdlock(&lock);
	pthread_t writer = start(write_it, NULL);
	long result = 0;
	for (int i = 0; i < 10 && result == 0; i++) { /* the writer may not wait yet */
		sleep_ms(10);
		result = (long)in_thread(read_it, NULL);
		PROMISE(!wrote);
	}
	pthread_rwlock_unlock(&lock);
	join(writer);
	PROMISE(wrote && pthread_rwlock_destroy(&lock) == 0);
	return result;
}

int main(void)
{
	PROMISE(reader_behind_writer(PTHREAD_RWLOCK_PREFER_READER_NP) == 0);
	PROMISE(reader_behind_writer(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == ETIMEDOUT);
	return 0;
}
