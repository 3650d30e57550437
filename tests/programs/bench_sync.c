/* SPDX-License-Identifier: MIT */
/* What single operations cost: prints microseconds for a create with its join, and nanoseconds for an uncontended lock
 * with its unlock when nothing else is touched; medians of rounds, so that a noisy moment does not count. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, THREADS = 20, LOCKS = 20000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *nothing(void *unused) { return unused; }

static double create_and_join(void)
{
	double before = now_ns();
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
			exit(1);
	}
	return (now_ns() - before) / THREADS / 1000;
}

static double lock_and_unlock(void)
{
	double before = now_ns();
	for (int i = 0; i < LOCKS; i++) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return (now_ns() - before) / LOCKS;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

static double median(double (*measure)(void))
{
	double values[ROUNDS];
	for (int i = 0; i < ROUNDS; i++)
		values[i] = measure();
	qsort(values, ROUNDS, sizeof *values, ascending);
	return values[ROUNDS / 2];
}

/* Measured in a thread: a program that never made one would be told nothing about programs that do. */
static void *lock_in_thread(void *result)
{
	*(double *)result = median(lock_and_unlock);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	double locks;
	double creates = median(create_and_join);
	if (pthread_create(&thread, NULL, lock_in_thread, &locks) || pthread_join(thread, NULL))
		return 1;
	printf("create_join_us %.3f\nlock_unlock_ns %.3f\n", creates, locks);
	return 0;
}
