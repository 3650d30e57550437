/* SPDX-License-Identifier: MIT */
/* A signal wakes one waiter at least, a broadcast all; a signal without waiters is not kept. */
#include "promise.h"

enum { COUNT = 6 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER, arrived = PTHREAD_COND_INITIALIZER;
static int waiting, tickets, served;

static void *wait_for_ticket(void *unused)
{
	pthread_mutex_lock(&mutex);
	waiting++;
	pthread_cond_signal(&arrived);
	while (tickets == 0)
		pthread_cond_wait(&condition, &mutex);
	tickets--;
	served++;
	pthread_cond_signal(&arrived);
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(void)
{
	pthread_t threads[COUNT];
	struct timespec until = after_ms(CLOCK_REALTIME, 20);
	pthread_cond_signal(&condition);
	pthread_mutex_lock(&mutex);
	PROMISE(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
	for (int i = 0; i < COUNT; i++)
		threads[i] = start(wait_for_ticket, NULL);
	while (waiting < COUNT)
		pthread_cond_wait(&arrived, &mutex);
	for (int i = 1; i <= 2; i++) {
		tickets = 1;
		pthread_cond_signal(&condition);
		while (served < i)
			pthread_cond_wait(&arrived, &mutex);
	}
	tickets = COUNT - 2;
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < COUNT; i++)
		join(threads[i]);
	PROMISE(served == COUNT && tickets == 0);
	return 0;
}
