/* SPDX-License-Identifier: MIT */
/* sem_wait, pthread_join, sigwait and a timed condition wait are cancellation points; a cancelled joiner leaves
 * its thread joinable. */
#include "promise.h"

#include <semaphore.h>

static sem_t semaphore;
static pthread_t sleeper;
static struct gate gate = GATE;

static void *wait_for_gate(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

static void *run(void *argument)
{
	sigset_t set;
	int number;
	switch ((long)argument) {
	case 0:
		sem_wait(&semaphore);
		break;
	case 1:
		pthread_join(sleeper, NULL);
		break;
	case 2:
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigwait(&set, &number);
		break;
	}
	broken("the wait is ended by the cancellation", __func__, (int)(long)argument);
	return NULL;
}

int main(void)
{
	sem_init(&semaphore, 0, 0);
	sleeper = start(wait_for_gate, NULL);
	for (long which = 0; which < 3; which++) {
		pthread_t thread = start(run, (void *)which);
		sleep_ms(20);
		pthread_cancel(thread);
		PROMISE(join(thread) == PTHREAD_CANCELED);
	}
	gate_open(&gate, 1);
	join(sleeper);
	PROMISE(sem_post(&semaphore) == 0 && sem_trywait(&semaphore) == 0);
	return 0;
}
