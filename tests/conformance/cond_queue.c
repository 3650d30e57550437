/* SPDX-License-Identifier: MIT */
/* Producers and consumers with two conditions on one mutex pass every item on exactly once. */
#include "promise.h"

enum { ITEMS = 4000, ROOM = 8 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], count, taken_from, put_at;
static unsigned char seen[2 * ITEMS];

static void *produce(void *argument)
{
	for (int i = 0; i < ITEMS; i++) {
		pthread_mutex_lock(&mutex);
		while (count == ROOM)
			pthread_cond_wait(&not_full, &mutex);
		queue[put_at++ % ROOM] = i + (int)(long)argument * ITEMS;
		count++;
		pthread_cond_signal(&not_empty);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void *consume(void *unused)
{
	for (int i = 0; i < ITEMS; i++) {
		pthread_mutex_lock(&mutex);
		while (count == 0)
			pthread_cond_wait(&not_empty, &mutex);
		seen[queue[taken_from++ % ROOM]]++;
		count--;
		pthread_cond_signal(&not_full);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[4] = {start(produce, (void *)0), start(consume, NULL), start(produce, (void *)1),
				start(consume, NULL)};
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	for (int i = 0; i < 2 * ITEMS; i++)
		PROMISE(seen[i] == 1);
	return 0;
}
