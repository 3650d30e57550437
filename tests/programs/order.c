/* SPDX-License-Identifier: MIT */
/*
 * Threads take turns by one kind of synchronisation, in an order the program itself fixes. Prints for each turn, in that
 * order: "turn TID FIRST LAST", where FIRST is the thread's n-th logged operation that began the turn (an acquire) and
 * LAST the one that ended it (a release). Operations are counted as libtthread logs them, the start being number 0.
 *
 *     order KIND THREADS ROUNDS        KIND: sem, mutex, spin, rwlock, cond, barrier
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16 };

struct turn {
	int tid;
	unsigned first, last;
};

static unsigned threads, rounds;
static unsigned now; /* the turn it is: `now % threads` is whose */
static struct turn *turns;
static sem_t sems[MOST];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;

static unsigned by_semaphore(unsigned me, unsigned n, unsigned mine)
{
	sem_wait(&sems[me]);
	turns[n] = (struct turn){gettid(), mine, mine + 1};
	sem_post(&sems[(me + 1) % threads]);
	return mine + 2;
}

/* Look until it is our turn, under a lock that has no queue. */
#define POLLED(name, lock, unlock)                                       \
	static unsigned name(unsigned me, unsigned n, unsigned mine)     \
	{                                                                \
		(void)me;                                                \
		for (;; mine += 2) {                                     \
			lock;                                            \
			if (now == n)                                    \
				break;                                   \
			unlock;                                          \
			sched_yield();                                   \
		}                                                        \
		now = n + 1;                                             \
		turns[n] = (struct turn){gettid(), mine, mine + 1};      \
		unlock;                                                  \
		return mine + 2;                                         \
	}

POLLED(by_mutex, pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex))
POLLED(by_spin, pthread_spin_lock(&spin), pthread_spin_unlock(&spin))
POLLED(by_rwlock, pthread_rwlock_wrlock(&rwlock), pthread_rwlock_unlock(&rwlock))

static unsigned by_condition(unsigned me, unsigned n, unsigned mine)
{
	unsigned first = mine++;
	(void)me;
	pthread_mutex_lock(&mutex);
	while (now != n) {
		pthread_cond_wait(&condition, &mutex);
		first = mine + 2; /* the mutex again, after its release and the condition */
		mine += 3;
	}
	now = n + 1;
	pthread_cond_broadcast(&condition);
	turns[n] = (struct turn){gettid(), first, mine + 1};
	pthread_mutex_unlock(&mutex);
	return mine + 2;
}

/* All meet before each turn: everybody's arrival is before everybody's next turn. */
static unsigned by_barrier(unsigned me, unsigned n, unsigned mine)
{
	(void)me;
	pthread_barrier_wait(&barrier); /* arrive and wait: mine, mine + 1 */
	turns[n] = (struct turn){gettid(), mine + 1, mine + 2};
	return mine + 2;
}

static const struct {
	const char *name;
	unsigned (*take)(unsigned me, unsigned n, unsigned mine);
} kinds[] = {
	{"sem", by_semaphore}, {"mutex", by_mutex},	{"spin", by_spin},
	{"rwlock", by_rwlock}, {"cond", by_condition}, {"barrier", by_barrier},
};

static unsigned (*take)(unsigned, unsigned, unsigned);

static void *run(void *argument)
{
	unsigned me = (unsigned)(size_t)argument, mine = 1; /* 0 is the start */
	for (unsigned round = 0; round < rounds; round++)
		mine = take(me, round * threads + me, mine);
	if (take == by_barrier)
		pthread_barrier_wait(&barrier);
	return NULL;
}

int main(int count, char **words)
{
	pthread_t ids[MOST];
	if (count != 4)
		return 2;
	threads = (unsigned)atoi(words[2]);
	rounds = (unsigned)atoi(words[3]);
	turns = calloc(threads * rounds, sizeof *turns);
	for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strcmp(kinds[i].name, words[1]) == 0)
			take = kinds[i].take;
	if (!take || threads > MOST)
		return 2;
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	pthread_barrier_init(&barrier, NULL, threads);
	for (unsigned i = 0; i < threads; i++)
		sem_init(&sems[i], 0, i == 0);
	for (unsigned i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, run, (void *)(size_t)i);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (unsigned n = 0; n < threads * rounds; n++)
		printf("turn %d %u %u\n", turns[n].tid, turns[n].first, turns[n].last);
	return 0;
}
