/* SPDX-License-Identifier: MIT */
/* A signal ends a semaphore wait with EINTR, which it does not do to a mutex lock or a barrier wait. */
#include "promise.h"

#include <semaphore.h>

static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int handled;

static void handler(int number) { (void)number; handled++; }

static void *wait_sem(void *unused)
{
	PROMISE(sem_wait(&semaphore) == -1 && errno == EINTR);
	return unused;
}

static void *wait_mutex(void *unused)
{
	PROMISE(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGUSR1, &action, NULL);
	sem_init(&semaphore, 0, 0);
	pthread_t thread = start(wait_sem, NULL);
	do { /* it may not wait yet */
		sleep_ms(5);
		pthread_kill(thread, SIGUSR1);
	} while (pthread_tryjoin_np(thread, NULL) == EBUSY);
	handled = 0;
	pthread_mutex_lock(&mutex);
	thread = start(wait_mutex, NULL);
	sleep_ms(30);
	pthread_kill(thread, SIGUSR1);
	sleep_ms(30);
	pthread_mutex_unlock(&mutex);
	join(thread);
	PROMISE(handled == 1);
	return 0;
}
