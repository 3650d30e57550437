/* SPDX-License-Identifier: MIT */
/*
 * Three threads read what the first of them to come sets up once, by pthread_once and by call_once. A third page one
 * of them writes afterwards, with nothing that orders it and the others' reads. Pages are so far apart that none is opened
 * ahead with another; their addresses are printed first.
 */
#include <pthread.h>
#include <stdio.h>
#include <threads.h>
#include <unistd.h>

enum { PAGE = 4096, APART = 16 * PAGE, PAGES = 3, THREADS = 3 };

static _Alignas(PAGE) volatile unsigned char pages[PAGES][APART];
static pthread_barrier_t begun;
static pthread_once_t control = PTHREAD_ONCE_INIT;
static once_flag flag = ONCE_FLAG_INIT;

static void set_up(void)
{
	usleep(20000); /* the others wait for it */
	pages[0][0] = 1;
}

static void set_up_the_other(void) { pages[1][0] = 2; }

static void *use(void *argument)
{
	const long k = (long)argument;

	pthread_barrier_wait(&begun);
	for (int i = 0; i < 2; i++) {
		pthread_once(&control, set_up);
		call_once(&flag, set_up_the_other);
	}
	if (!k)
		pages[2][0] = 3;
	return (void *)(long)(pages[0][0] + pages[1][0] + (k ? pages[2][0] : 0));
}

int main(void)
{
	pthread_t threads[THREADS];
	void *sum;

	for (int i = 0; i < PAGES; i++)
		printf("page %d %p\n", i, (void *)pages[i]);
	pthread_barrier_init(&begun, NULL, THREADS);
	for (long k = 0; k < THREADS; k++)
		if (pthread_create(&threads[k], NULL, use, (void *)k))
			return 3;
	for (int k = 0; k < THREADS; k++) {
		pthread_join(threads[k], &sum);
		if ((long)sum < 3)
			return 4;
	}
	return 0;
}
