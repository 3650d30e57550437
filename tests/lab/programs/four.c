/* SPDX-License-Identifier: MIT */
/* Four threads that take a mutex in turn, ROUNDS times each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long total, rounds;

static void *work(void *number)
{
	long x = (long)number + 7;

	for (long i = 0; i < rounds; i++) {
		for (int k = 0; k < 200; k++)
			x = x & 1 ? x * 3 + 1 : x / 2 + k;
		pthread_mutex_lock(&mutex);
		total += x;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];

	rounds = argc > 1 ? atol(argv[1]) : 50;
	for (long i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", total);
	return 0;
}
