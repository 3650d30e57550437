/* SPDX-License-Identifier: MIT */
/* What a thread's life promises, case by case: prints what happened, which must not depend on how threads are made. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int global;
static __thread int local_to_thread = 5;
static pthread_key_t key;
static int destroyed;

static void *number(intptr_t value) { return (void *)value; }
static void destroy(void *value) { __atomic_fetch_add(&destroyed, (int)(intptr_t)value, __ATOMIC_SEQ_CST); }

static void *touch(void *argument)
{
	*(int *)argument += local_to_thread++;
	global++;
	pthread_setspecific(key, number(1));
	return strdup("from the thread");
}

static void *who(void *argument)
{
	*(pthread_t *)argument = pthread_self();
	return NULL;
}

static void *leave(void *argument) { pthread_exit(argument); }

static void *nap(void *microseconds)
{
	usleep((useconds_t)(intptr_t)microseconds);
	return microseconds;
}

static void *tree(void *argument)
{
	intptr_t depth = (intptr_t)argument;
	pthread_t left, right;
	void *a, *b;
	if (depth == 0)
		return number(1);
	pthread_create(&left, NULL, tree, number(depth - 1));
	pthread_create(&right, NULL, tree, number(depth - 1));
	pthread_join(left, &a);
	pthread_join(right, &b);
	return number((intptr_t)a + (intptr_t)b);
}

static struct timespec soon(long ns)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_nsec += ns;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

static void memory(void)
{
	pthread_t thread;
	void *text;
	int local = 10;
	printf("created %d\n", pthread_create(&thread, NULL, touch, &local));
	printf("joined %d\n", pthread_join(thread, &text));
	printf("local %d, global %d, thread-local %d, destroyed %d, %s\n", local, global, local_to_thread, destroyed,
	       (char *)text);
	free(text);
}

static void identity(void)
{
	pthread_t thread, self;
	void *result;
	pthread_create(&thread, NULL, who, &self);
	pthread_join(thread, NULL);
	printf("pthread_self is what was created: %d\n", pthread_equal(self, thread) != 0);
	pthread_create(&thread, NULL, leave, number(77));
	pthread_join(thread, &result);
	printf("pthread_exit gave %d\n", (int)(intptr_t)result);
}

static void joins(void)
{
	pthread_t thread;
	void *result;
	struct timespec until = soon(1000000);
	pthread_create(&thread, NULL, nap, number(100000));
	printf("try: busy %d\n", pthread_tryjoin_np(thread, &result) == EBUSY);
	printf("timed: out of time %d\n", pthread_timedjoin_np(thread, &result, &until) == ETIMEDOUT);
	printf("join %d: ", pthread_join(thread, &result));
	printf("%d\n", (int)(intptr_t)result);
	printf("of itself: %d\n", pthread_join(pthread_self(), NULL) == EDEADLK);
	pthread_create(&thread, NULL, nap, number(50000));
	printf("detach %d\n", pthread_detach(thread));
	printf("again: %d\n", pthread_detach(thread) == EINVAL);
	printf("join of a detached one: %d\n", pthread_join(thread, NULL) == EINVAL);
}

static void many(void)
{
	pthread_t threads[200];
	int failed = 0;
	for (int i = 0; i < 200; i++)
		failed += pthread_create(&threads[i], NULL, nap, number(20000)) != 0;
	for (int i = 0; i < 200; i++)
		failed += pthread_join(threads[i], NULL) != 0;
	printf("of 200 threads failed: %d\n", failed);
	void *result;
	pthread_create(&threads[0], NULL, tree, number(4));
	pthread_join(threads[0], &result);
	printf("leaves of the tree: %d\n", (int)(intptr_t)result);
	for (int i = 0; i < 1500; i++) { /* more than there can be at once */
		failed += pthread_create(&threads[0], NULL, leave, NULL) != 0;
		failed += pthread_join(threads[0], NULL) != 0;
	}
	printf("one after the other failed: %d\n", failed);
}

int main(void)
{
	pthread_key_create(&key, destroy);
	memory();
	identity();
	joins();
	many();
	return 3;
}
