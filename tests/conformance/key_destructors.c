/* SPDX-License-Identifier: MIT */
/* A key's destructor gets the thread's own value once, not for NULL; other threads' values are untouched. */
#include "promise.h"

static pthread_key_t key;
static int calls[5];

static void destroy(void *value) { ++*(int *)value; }

static void *use(void *value)
{
	PROMISE(pthread_getspecific(key) == NULL);
	PROMISE(pthread_setspecific(key, value) == 0);
	PROMISE(pthread_getspecific(key) == value);
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	PROMISE(pthread_key_create(&key, destroy) == 0);
	pthread_setspecific(key, &calls[4]);
	for (int i = 0; i < 3; i++)
		threads[i] = start(use, &calls[i]);
	threads[3] = start(use, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(calls[0] == 1 && calls[1] == 1 && calls[2] == 1 && calls[3] == 0 && calls[4] == 0);
	PROMISE(pthread_getspecific(key) == &calls[4]);
	return 0;
}
