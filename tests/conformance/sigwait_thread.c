/* SPDX-License-Identifier: MIT */
/* A thread in sigwait takes the signals that all block, sent to the process or to it. */
#include "promise.h"

#include <semaphore.h>

static int taken[2];
static sem_t first;

static void *take(void *argument)
{
	sigset_t *set = argument;
	int number;
	do {
		PROMISE(sigwait(set, &number) == 0);
		taken[number == SIGUSR2]++;
		sem_post(&first);
	} while (number != SIGUSR2);
	return NULL;
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sem_init(&first, 0, 0);
	pthread_t thread = start(take, &set);
	kill(getpid(), SIGUSR1);
	sem_wait(&first); /* a thread takes its own signals before those of the process, whichever came first */
	pthread_kill(thread, SIGUSR2);
	join(thread);
	PROMISE(taken[0] == 1 && taken[1] == 1);
	return 0;
}
