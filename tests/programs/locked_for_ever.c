/* SPDX-License-Identifier: MIT */
/*
 * One thread takes a lock and keeps it; others log lock operations as fast as they can, and one waits for the lock. On
 * stdout: the numbers (tids) of all threads, main's first, then the keeper's. Each byte on stdin is one more line
 * "alive"; at its end the program ends with status 0.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { WORKERS = 2 };

static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER, busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begun;
static pid_t numbers[WORKERS + 2];

static void *keep(void *unused)
{
	pthread_mutex_lock(&kept);
	numbers[0] = gettid();
	pthread_barrier_wait(&begun);
	for (;;)
		pause();
	return unused;
}

static void *work(void *number)
{
	*(pid_t *)number = gettid();
	pthread_barrier_wait(&begun);
	for (;;) {
		pthread_mutex_lock(&busy);
		pthread_mutex_unlock(&busy);
		usleep(100);
	}
	return NULL;
}

static void *want(void *number)
{
	*(pid_t *)number = gettid();
	pthread_barrier_wait(&begun);
	pthread_mutex_lock(&kept);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	char byte;
	pthread_barrier_init(&begun, NULL, WORKERS + 3);
	pthread_create(&thread, NULL, keep, NULL);
	pthread_create(&thread, NULL, want, &numbers[1]);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&thread, NULL, work, &numbers[2 + i]);
	pthread_barrier_wait(&begun);
	printf("%d", gettid());
	for (int i = 0; i < WORKERS + 2; i++)
		printf(" %d", numbers[i]);
	printf("\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1) {
		printf("alive\n");
		fflush(stdout);
	}
	_exit(0);
}
