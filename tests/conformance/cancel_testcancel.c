/* SPDX-License-Identifier: MIT */
/* A deferred cancellation waits for a cancellation point; the joiner gets PTHREAD_CANCELED. */
#include "promise.h"

static volatile int cancelled, went_on;
static struct gate gate = GATE;

static void *run(void *unused)
{
	gate_open(&gate, 1);
	while (!cancelled)
		;
	went_on = 1;
	pthread_testcancel();
	broken("testcancel ends the thread", __func__, __LINE__);
	return unused;
}

int main(void)
{
	pthread_t thread = start(run, NULL);
	gate_wait(&gate, 1);
	PROMISE(pthread_cancel(thread) == 0);
	cancelled = 1;
	PROMISE(join(thread) == PTHREAD_CANCELED && went_on);
	return 0;
}
