/* SPDX-License-Identifier: MIT */
/* What was written before an unlock, a post, a signal or an exit is seen after the lock, wait or join that
 * follows it. */
#include "promise.h"

#include <semaphore.h>

enum { WORDS = 8192 };

static int data[WORDS];
static sem_t to, back;

static void *follow(void *unused)
{
	for (int round = 1; round <= 50; round++) {
		sem_wait(&to);
		for (int i = 0; i < WORDS; i += 97)
			PROMISE(data[i] == round);
		for (int i = 0; i < WORDS; i += 97)
			data[i] = -round;
		sem_post(&back);
	}
	data[1] = 5;
	return unused;
}

int main(void)
{
	sem_init(&to, 0, 0);
	sem_init(&back, 0, 0);
	pthread_t thread = start(follow, NULL);
	for (int round = 1; round <= 50; round++) {
		for (int i = 0; i < WORDS; i += 97)
			data[i] = round;
		sem_post(&to);
		sem_wait(&back);
		for (int i = 0; i < WORDS; i += 97)
			PROMISE(data[i] == -round);
	}
	join(thread);
	PROMISE(data[1] == 5);
	return 0;
}
