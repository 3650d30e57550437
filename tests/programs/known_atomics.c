/* SPDX-License-Identifier: MIT */
/*
 * Two threads add to a word atomically, add to another that only one of them adds to so, and exchange a third. Pages
 * are so far apart that none is opened ahead with another; their addresses are printed first.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096, APART = 16 * PAGE, PAGES = 3 };

static _Alignas(PAGE) volatile unsigned char pages[PAGES][APART];
static pthread_barrier_t begun;

static void *use(void *argument)
{
	const long k = (long)argument;

	pthread_barrier_wait(&begun);
	__atomic_fetch_add(&pages[0][0], 1, __ATOMIC_RELAXED);
	if (k)
		__atomic_fetch_add(&pages[1][0], 1, __ATOMIC_RELAXED);
	else
		pages[1][0]++;
	__atomic_exchange_n(&pages[2][0], (unsigned char)k, __ATOMIC_RELAXED);
	return NULL;
}

int main(void)
{
	pthread_t threads[2];

	for (int i = 0; i < PAGES; i++)
		printf("page %d %p\n", i, (void *)pages[i]);
	pthread_barrier_init(&begun, NULL, 2);
	for (long k = 0; k < 2; k++)
		if (pthread_create(&threads[k], NULL, use, (void *)k))
			return 3;
	for (int k = 0; k < 2; k++)
		pthread_join(threads[k], NULL);
	return 0;
}
