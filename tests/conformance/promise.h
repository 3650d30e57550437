/* SPDX-License-Identifier: MIT */
/*
 * What the conformance programs share. Each keeps one promise that glibc's threads keep; the first comment of its file
 * says which. It ends with status 0 when the promise was kept, and else says on stderr which condition did not hold
 * and ends with status 1. A program that has to end otherwise says so in a line "Ends: exit N" or "Ends: SIGNAME".
 */
#ifndef PTWEAVE_PROMISE_H
#define PTWEAVE_PROMISE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PAGE = 4096, MS = 1000000 };

/* Ends the whole program with status 1 when a condition does not hold; from any thread, and from fork children. */
#define PROMISE(condition) ((condition) ? (void)0 : broken(#condition, __func__, __LINE__))

__attribute__((noreturn, unused)) static void broken(const char *condition, const char *function, int line)
{
	dprintf(STDERR_FILENO, "broken: %s (%s, line %d, errno %d)\n", condition, function, line, errno);
	_exit(1);
}

__attribute__((unused)) static pthread_t start(void *(*routine)(void *), void *argument)
{
	pthread_t thread;
	PROMISE(pthread_create(&thread, NULL, routine, argument) == 0);
	return thread;
}

__attribute__((unused)) static void *join(pthread_t thread)
{
	void *value = NULL;
	PROMISE(pthread_join(thread, &value) == 0);
	return value;
}

/* Runs a routine in a thread of its own, to its end. */
__attribute__((unused)) static void *in_thread(void *(*routine)(void *), void *argument)
{
	return join(start(routine, argument));
}

__attribute__((unused)) static void sleep_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * MS};
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

__attribute__((unused)) static int64_t now_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((unused)) static struct timespec after_ms(clockid_t clock, long ms)
{
	int64_t then = now_ns(clock) + ms * (int64_t)MS;
	return (struct timespec){then / 1000000000, then % 1000000000};
}

/* Memory of the heap with `pages` whole pages that nobody has touched. */
__attribute__((unused)) static char *untouched(size_t pages)
{
	char *memory = (char *)mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	PROMISE(memory != MAP_FAILED);
	return memory;
}

/* A flag that threads wait for through a mutex and a condition. */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int step;
};
#define GATE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

__attribute__((unused)) static void gate_open(struct gate *gate, int step)
{
	pthread_mutex_lock(&gate->mutex);
	gate->step = step;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->mutex);
}

__attribute__((unused)) static void gate_wait(struct gate *gate, int step)
{
	pthread_mutex_lock(&gate->mutex);
	while (gate->step < step)
		pthread_cond_wait(&gate->changed, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

#ifdef __cplusplus
}
#endif
#endif
