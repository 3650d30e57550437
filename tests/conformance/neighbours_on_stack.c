/* SPDX-License-Identifier: MIT */
/* Threads and the owner of a stack change neighbouring bytes on it, in turns: each sees what the other wrote. */
#include "promise.h"

enum { ROUNDS = 200 };

static pthread_barrier_t barrier;

struct both {
	volatile unsigned char owners, others, again;
	volatile int number;
};

static void *change(void *argument)
{
	struct both *both = argument;
	for (int round = 1; round <= ROUNDS; round++) {
		both->others = (unsigned char)round;
		pthread_barrier_wait(&barrier);
		PROMISE(both->owners == (unsigned char)round && both->again == (unsigned char)(3 * round));
		PROMISE(both->number == 7 * round && both->others == (unsigned char)round);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *own(void *unused)
{
	struct both both = {0};
	pthread_t thread = start(change, &both);
	for (int round = 1; round <= ROUNDS; round++) {
		both.owners = (unsigned char)round;
		both.again = (unsigned char)(3 * round);
		both.number = 7 * round;
		pthread_barrier_wait(&barrier);
		PROMISE(both.owners == (unsigned char)round && both.others == (unsigned char)round);
		pthread_barrier_wait(&barrier);
	}
	join(thread);
	return unused;
}

int main(void)
{
	pthread_barrier_init(&barrier, NULL, 2);
	own(NULL);
	in_thread(own, NULL);
	return 0;
}
