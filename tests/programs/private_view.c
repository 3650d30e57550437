/* SPDX-License-Identifier: MIT */
/*
 * What the private view is about, one word at a time.
 *
 *   bytes    THREADS threads change every THREADS-th byte of PAGES pages at once; all bytes are there afterwards
 *   atomics  they count in one atomic counter that lies beside plain data
 *   opened   the same, when they have written to the page before
 *   race     they change the same byte without an order
 *   reuse    blocks go from thread to thread through the allocator alone
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 4, PAGES = 3, PAGE = 4096, ROUNDS = 50, COUNTS = 20000 };

static _Alignas(PAGE) unsigned char shared_bytes[PAGES * PAGE];
static _Alignas(PAGE) struct { long before; atomic_long counter; long own[THREADS]; } beside;
static _Alignas(PAGE) volatile unsigned char contended;
static pthread_barrier_t barrier;
static atomic_int *arrived;
static void *volatile passed[THREADS];

static void *change_bytes(void *argument)
{
	long id = (long)argument;
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = (int)id; i < PAGES * PAGE; i += THREADS)
			shared_bytes[i] = (unsigned char)(round + i);
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < PAGES * PAGE; i++)
			if (shared_bytes[i] != (unsigned char)(round + i))
				exit(1);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *count(void *unused)
{
	for (int i = 0; i < COUNTS; i++)
		atomic_fetch_add(&beside.counter, 1);
	return unused;
}

/* Of all threads before one of them commits. */
static void *open_and_count(void *argument)
{
	beside.own[(long)argument] = 1;
	for (int i = 0; i < COUNTS; i++)
		atomic_fetch_add(&beside.counter, 1);
	return NULL;
}

/* They wait for each other in memory that is never private, without a call: all have the page open before one commits. */
static void *race(void *argument)
{
	contended = 1;
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < THREADS)
		;
	contended = (unsigned char)(10 + (long)argument);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* What one thread frees another gets, and finds neither lost nor old bytes in it. */
static void *reuse(void *argument)
{
	long id = (long)argument;
	for (int round = 0; round < ROUNDS; round++) {
		unsigned char *block = malloc(3000);
		memset(block, round + (int)id, 3000);
		passed[id] = block;
		pthread_barrier_wait(&barrier);
		unsigned char *other = passed[(id + 1) % THREADS];
		for (int i = 0; i < 3000; i++)
			if (other[i] != (unsigned char)(round + (id + 1) % THREADS))
				exit(1);
		memset(other, 0xee, 3000);
		free(other);
		pthread_barrier_wait(&barrier);
		unsigned char *zeros = calloc(1, 3000);
		for (int i = 0; i < 3000; i++)
			if (zeros[i])
				exit(1);
		free(zeros);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	void *(*routine)(void *) = strcmp(what, "bytes") == 0 ? change_bytes
				   : strcmp(what, "atomics") == 0 ? count
				   : strcmp(what, "opened") == 0 ? open_and_count
				   : strcmp(what, "race") == 0 ? race
				   : strcmp(what, "reuse") == 0 ? reuse
								 : NULL;
	pthread_t threads[THREADS];
	if (!routine)
		return 2;
	arrived = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrier_init(&barrier, NULL, THREADS);
	beside.before = 1;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, routine, (void *)i);
	for (long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%p %ld %d\n", (void *)shared_bytes, atomic_load(&beside.counter), contended >= 10);
	return 0;
}
