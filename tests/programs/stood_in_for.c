// SPDX-License-Identifier: MIT
// Calls functions that libtthread has, too, a known number of times in each thread: stood_in_for COUNT THREADS. Says the
// address of the lock, and that of every block.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 70001, BLOCKS = 1000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *blocks[BLOCKS];
static int used, count;

static void *work(void *unused)
{
	for (int i = 0; i < count; i++) {
		char *one = malloc(SIZE), *other = calloc(1, SIZE);

		one[0] = other[0] = 1;
		pthread_mutex_lock(&lock);
		blocks[used++] = one;
		pthread_mutex_unlock(&lock);
		free(other);
	}
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 1;
	pthread_t thread[16];

	count = atoi(argv[1]);
	for (int i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	work(NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%p\n", (void *)&lock);
	for (int i = 0; i < used; i++)
		printf("%p\n", blocks[i]);
	return 0;
}
