/* SPDX-License-Identifier: MIT */
/* Threads that take blocks of all sizes from the library of other_allocator.c, beside each other, and hand them to main,
 * which looks at each, makes every third one longer and gives them back. */
#include "other_allocator.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, BLOCKS = 300, LARGE_EVERY = 50 };

static unsigned char *made[THREADS][BLOCKS];

static size_t size_of(int i) { return i % LARGE_EVERY == 7 ? (size_t)(1 << 20) + (size_t)i * 100 : 16 + (size_t)i * 37; }

static void *work(void *argument)
{
	long me = (long)argument;
	for (int i = 0; i < BLOCKS; i++) {
		made[me][i] = take(size_of(i));
		memset(made[me][i], (int)me + i, size_of(i));
		free(malloc(100)); /* of whoever has malloc */
	}
	return NULL;
}

static bool is_whole(const unsigned char *block, size_t size, int value)
{
	for (size_t i = 0; i < size; i++)
		if (block[i] != (unsigned char)value)
			return false;
	return true;
}

static bool check(int thread, int i)
{
	unsigned char *block = made[thread][i];
	size_t size = size_of(i);
	bool right = is_whole(block, size, thread + i) && malloc_usable_size(block) >= size;
	if (i % 3 == 0) {
		block = realloc(block, 2 * size);
		right &= is_whole(block, size, thread + i);
		memset(block, 0, 2 * size);
	}
	give(block);
	return right;
}

int main(void)
{
	pthread_t thread[THREADS];
	int wrong = 0;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int j = 0; j < BLOCKS; j++)
			wrong += !check(i, j);
	printf("%d wrong, %ld returned\n", wrong, returned());
	return wrong != 0;
}
