/* SPDX-License-Identifier: MIT */
/* Four threads that compute, with branches, calls through qsort's comparator, and a lock now and then. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, BUFFER = 256, LOCK_EVERY = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total;
static long rounds;

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void *work(void *arg)
{
	uint32_t state = (uint32_t)(uintptr_t)arg * 7919 + 1;
	uint64_t sum = 0;
	uint32_t buffer[BUFFER];

	for (long i = 0; i < rounds; i++) {
		for (int k = 0; k < BUFFER; k++) {
			state = state * 1664525 + 1013904223;
			buffer[k] = state >> 8;
			if (state & 0x100)
				sum += (uint64_t)k;
			else
				sum ^= state;
		}
		qsort(buffer, BUFFER, sizeof(buffer[0]), compare);
		sum += buffer[BUFFER / 2];
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
