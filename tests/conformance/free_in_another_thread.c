/* SPDX-License-Identifier: MIT */
/* Blocks are freed by other threads than allocated them, millions of bytes over, and memory does not grow. */
#include "promise.h"

#include <malloc.h>

enum { SLOTS = 64, ROUNDS = 20000 };

static char *ring[SLOTS];
static long put, taken;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *produce(void *unused)
{
	for (long i = 0; i < ROUNDS; i++) {
		size_t size = 16 + (size_t)(i * 37 % 3000);
		char *block = malloc(size);
		memset(block, (char)i, size);
		pthread_mutex_lock(&mutex);
		while (put - taken == SLOTS)
			pthread_cond_wait(&changed, &mutex);
		ring[put++ % SLOTS] = block;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

int main(void)
{
	pthread_t thread = start(produce, NULL);
	for (long i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		while (put == taken)
			pthread_cond_wait(&changed, &mutex);
		char *block = ring[taken++ % SLOTS];
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&mutex);
		size_t size = 16 + (size_t)(i * 37 % 3000);
		PROMISE(block[0] == (char)i && block[size - 1] == (char)i);
		free(block);
	}
	join(thread);
	return 0;
}
