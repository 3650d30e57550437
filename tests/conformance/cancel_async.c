/* SPDX-License-Identifier: MIT */
/* With asynchronous cancellation a thread that never calls anything is ended. */
#include "promise.h"

static volatile int running;

static void *spin(void *unused)
{
	int before;
	PROMISE(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before) == 0);
	PROMISE(before == PTHREAD_CANCEL_DEFERRED);
	for (volatile long i = 0;; i++)
		running = 1;
	return unused;
}

int main(void)
{
	pthread_t thread = start(spin, NULL);
	while (!running)
		sleep_ms(1);
	pthread_cancel(thread);
	PROMISE(join(thread) == PTHREAD_CANCELED);
	return 0;
}
