/* SPDX-License-Identifier: MIT */
/* Two variables on pages of their own, static both; threads write to each in turn. Says where they lie when asked. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096, THREADS = 3, ROUNDS = 20 };

static volatile char quiet[2 * PAGE] __attribute__((aligned(4096)));
static volatile char loud[2 * PAGE] __attribute__((aligned(4096)));
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *body(void *block)
{
	volatile char *memory = block;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		quiet[0]++;
		quiet[PAGE]++;
		loud[0]++;
		loud[PAGE]++;
		memory[0]++;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	volatile char *block = aligned_alloc(PAGE, PAGE);
	block[0] = 0;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, body, (void *)block);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (quiet[PAGE] != THREADS * ROUNDS || loud[0] != THREADS * ROUNDS || block[0] != THREADS * ROUNDS)
		abort();
	printf("%p %p %p\n", (void *)(unsigned long)quiet, (void *)(unsigned long)loud, (void *)(unsigned long)block);
	return 0;
}
