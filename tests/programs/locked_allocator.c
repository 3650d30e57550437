/* SPDX-License-Identifier: MIT */
/*
 * A program whose allocator takes a mutex: glibc frees a thread's buffers (here strerror's) by it when all destructors
 * have run and the thread has ended as far as anybody can tell. Prints how often it was taken.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 5

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char memory[4 << 20];
static size_t used;
static volatile size_t taken;

void *malloc(size_t size)
{
	pthread_mutex_lock(&mutex);
	void *found = memory + used;
	used += (size + 31) & ~(size_t)15;
	taken++;
	pthread_mutex_unlock(&mutex);
	return found;
}

void free(void *place)
{
	if (!place)
		return;
	pthread_mutex_lock(&mutex);
	taken++;
	pthread_mutex_unlock(&mutex);
}

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *before, size_t size)
{
	void *found = malloc(size);

	return found && before ? memcpy(found, before, size) : found;
}

static void *thread(void *unused)
{
	return strerror(12345)[0] == 'U' ? unused : NULL; /* no error has that number: it is printed into a buffer */
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, thread, NULL))
			return 1;
		pthread_join(threads[i], NULL);
	}
	size_t before = taken;
	void *volatile place = malloc(8);
	free(place);
	return taken == before + 2 ? 0 : 1;
}
