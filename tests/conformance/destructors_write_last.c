/* SPDX-License-Identifier: MIT */
/* What a destructor writes in the last of its rounds is seen after the join, whatever the joiner did meanwhile. */
#include "promise.h"

#include <limits.h>

static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int rounds, last, kept_busy;
	char rest[2 * PAGE];
} page __attribute__((aligned(2 * PAGE))); /* away from the mutex */

static void again(void *value)
{
	pthread_setspecific(key, value);
	if (++page.rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
		return;
	sleep_ms(30);
	page.last = 1;
}

static void *set(void *value)
{
	pthread_setspecific(key, value);
	return NULL;
}

int main(void)
{
	pthread_key_create(&key, again);
	pthread_t thread = start(set, &page);
	for (int i = 0; i < 60; i++) {
		pthread_mutex_lock(&mutex);
		page.kept_busy++;
		pthread_mutex_unlock(&mutex);
		sleep_ms(1);
	}
	join(thread);
	PROMISE(page.rounds == PTHREAD_DESTRUCTOR_ITERATIONS && page.last == 1 && page.kept_busy == 60);
	return 0;
}
