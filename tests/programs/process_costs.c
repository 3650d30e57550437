/* SPDX-License-Identifier: MIT */
/* What process mode may do cheaply. Two threads lock and unlock a mutex ROUNDS times each; what they touch meanwhile is
 * in the first argument: nothing, a counter beside the program's linkage table, or PAGES pages that both write.
 * Prints the counter's address, the pages' address and the sum of what was counted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 400, PAGES = 64, PAGE = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long counter;
static volatile char *pages;

static void *nothing(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

static void *count(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		counter = counter + 1;
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

/* Not in order: so no window is due to accesses that follow each other. */
static void *contend(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		for (int j = 0; j < PAGES; j++) {
			volatile char *page = pages + j * 29 % PAGES * PAGE;
			*page = (char)(*page + 1);
		}
		counter = counter + 1;
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

int main(int argc, char **argv)
{
	void *(*routine)(void *) = argc < 2 ? NULL : !strcmp(argv[1], "nothing") ? nothing : !strcmp(argv[1], "count") ? count : contend;
	pthread_t threads[2];
	long sum = 0;
	if (!routine || !(pages = aligned_alloc(PAGE, (size_t)PAGES * PAGE)))
		return 2;
	memset((char *)pages, 0, (size_t)PAGES * PAGE);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, routine, NULL))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int j = 0; j < PAGES; j++)
		sum += (unsigned char)pages[j * PAGE];
	printf("%p %p %ld\n", (void *)&counter, (void *)pages, sum + counter);
	return 0;
}
