/* SPDX-License-Identifier: MIT */
/* Locks work wherever they lie: on a thread's stack, in the heap, in a mapping, in zeroed memory without a call
 * to init. */
#include "promise.h"

static long counter;

static void *add(void *mutex)
{
	for (int i = 0; i < 2000; i++) {
		PROMISE(pthread_mutex_lock(mutex) == 0);
		counter++;
		PROMISE(pthread_mutex_unlock(mutex) == 0);
	}
	return NULL;
}

static void use(pthread_mutex_t *mutex)
{
	counter = 0;
	pthread_t one = start(add, mutex), two = start(add, mutex);
	add(mutex);
	join(one);
	join(two);
	PROMISE(counter == 6000);
}

static void *on_my_stack(void *unused)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	use(&mutex);
	return unused;
}

int main(void)
{
	pthread_mutex_t *heap = calloc(1, sizeof *heap);
	static pthread_mutex_t zeroed;
	on_my_stack(NULL);
	in_thread(on_my_stack, NULL);
	use(heap);
	free(heap);
	use((pthread_mutex_t *)untouched(1));
	use(&zeroed);
	return 0;
}
