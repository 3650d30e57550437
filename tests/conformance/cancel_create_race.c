/* SPDX-License-Identifier: MIT */
/* A thread cancelled right after its creation never gets past its first cancellation point. */
#include "promise.h"

static volatile int passed;

static void *run(void *unused)
{
	pthread_testcancel();
	sleep_ms(60000);
	passed = 1;
	return unused;
}

int main(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_t thread = start(run, NULL);
		PROMISE(pthread_cancel(thread) == 0);
		PROMISE(join(thread) == PTHREAD_CANCELED);
	}
	PROMISE(!passed);
	return 0;
}
