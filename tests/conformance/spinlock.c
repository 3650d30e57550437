/* SPDX-License-Identifier: MIT */
/* A spinlock excludes, and trylock is EBUSY while it is held. */
#include "promise.h"

static pthread_spinlock_t lock;
static long counter;

static void *add(void *unused)
{
	for (int i = 0; i < 3000; i++) {
		PROMISE(pthread_spin_lock(&lock) == 0);
		counter++;
		PROMISE(pthread_spin_unlock(&lock) == 0);
	}
	return unused;
}

static void *try(void *unused)
{
	PROMISE(pthread_spin_trylock(&lock) == EBUSY);
	return unused;
}

int main(void)
{
	pthread_t threads[3];
	PROMISE(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE) == 0);
	for (int i = 0; i < 3; i++)
		threads[i] = start(add, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	PROMISE(counter == 9000 && pthread_spin_trylock(&lock) == 0);
	in_thread(try, NULL);
	PROMISE(pthread_spin_unlock(&lock) == 0 && pthread_spin_destroy(&lock) == 0);
	return 0;
}
