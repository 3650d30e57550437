/* SPDX-License-Identifier: MIT */
/* Locks in memory that the library of other_allocator.c mapped before main: threads take turns by a condition variable,
 * then all write under a reader-writer lock while others read under it. None of them is marked process-shared. */
#include "other_allocator.h"

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 3, TURNS = 400, WRITES = 2000 };

static struct shared {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_rwlock_t both;
	long turn;
	long first, second; /* always alike when nobody writes */
} *shared;

static long differed;

static void take_turns(long me)
{
	for (int i = 0; i < TURNS; i++) {
		pthread_mutex_lock(&shared->lock);
		while (shared->turn % THREADS != me)
			pthread_cond_wait(&shared->changed, &shared->lock);
		shared->turn++;
		pthread_cond_broadcast(&shared->changed);
		pthread_mutex_unlock(&shared->lock);
	}
}

static void write_and_read(void)
{
	for (int i = 0; i < WRITES; i++) {
		pthread_rwlock_wrlock(&shared->both);
		shared->first++;
		shared->second++;
		pthread_rwlock_unlock(&shared->both);
		pthread_rwlock_rdlock(&shared->both);
		if (shared->first != shared->second)
			__atomic_fetch_add(&differed, 1, __ATOMIC_RELAXED);
		pthread_rwlock_unlock(&shared->both);
	}
}

static void *work(void *argument)
{
	take_turns((long)argument);
	write_and_read();
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	shared = take(sizeof *shared);
	*shared = (struct shared){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
				  .both = PTHREAD_RWLOCK_INITIALIZER};
	for (long i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	printf("%ld turns, %ld writes, %ld differed\n", shared->turn, shared->first, differed);
	return 0;
}
