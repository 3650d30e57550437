/* SPDX-License-Identifier: MIT */
/* Four threads; each locks and unlocks ROUNDS times in `add`, main creates and joins them. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 300 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long total;

__attribute__((noinline, noclone)) void add(long n)
{
	pthread_mutex_lock(&lock);
	total += n;
	pthread_mutex_unlock(&lock);
}

__attribute__((noinline, noclone)) void *worker(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		add((long)arg);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", total);
	return 0;
}
