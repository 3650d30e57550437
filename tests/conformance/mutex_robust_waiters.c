/* SPDX-License-Identifier: MIT */
/* A thread that already waits for a robust mutex is woken with EOWNERDEAD when the owner ends, also by
 * cancellation. */
#include "promise.h"

static pthread_mutex_t mutex;
static struct gate gate = GATE;

static void *hold(void *unused)
{
	pthread_mutex_lock(&mutex);
	gate_open(&gate, 1);
	sleep_ms(60000);
	return unused;
}

static void *wait_for_it(void *unused)
{
	PROMISE(pthread_mutex_lock(&mutex) == EOWNERDEAD);
	PROMISE(pthread_mutex_consistent(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
	return unused;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &attributes);
	pthread_t owner = start(hold, NULL);
	gate_wait(&gate, 1);
	pthread_t waiter = start(wait_for_it, NULL);
	sleep_ms(20);
	pthread_cancel(owner);
	join(owner);
	join(waiter);
	PROMISE(pthread_mutex_lock(&mutex) == 0);
	return 0;
}
