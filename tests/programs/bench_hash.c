/* SPDX-License-Identifier: MIT */
/* Four threads that hash: dependent multiplications, a table that stays in the cache, an unpredictable branch. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, SLOTS = 4096, LOCK_EVERY = 1 << 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total;
static long rounds;

static void *work(void *arg)
{
	static _Thread_local uint64_t table[SLOTS];
	uint64_t hash = (uint64_t)(uintptr_t)arg + 1, sum = 0;

	for (long i = 0; i < rounds; i++) {
		hash ^= hash >> 31;
		hash *= 0x9E3779B97F4A7C15u;
		hash ^= hash >> 29;
		uint64_t *slot = &table[hash % SLOTS];

		if (*slot & 1)
			sum += *slot >> 3;
		else
			sum ^= hash;
		*slot = hash + sum;
		if (i % LOCK_EVERY == 0) {
			pthread_mutex_lock(&mutex);
			total += sum;
			pthread_mutex_unlock(&mutex);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	rounds = argc > 1 ? atol(argv[1]) : 1000;
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%llu\n", (unsigned long long)total);
	return 0;
}
