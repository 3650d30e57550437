/* SPDX-License-Identifier: MIT */
/* free, printf and other calls that are no cancellation points let a pending cancellation wait, and locks of
 * libc are free after it. */
#include "promise.h"

static struct gate gate = GATE;
static int reached;

static void *work(void *unused)
{
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	for (int i = 0; i < 100; i++)
		free(malloc(100));
	pthread_mutex_lock(&gate.mutex);
	reached = 1;
	pthread_mutex_unlock(&gate.mutex);
	for (;;)
		pthread_testcancel();
	return unused;
}

int main(void)
{
	pthread_t thread = start(work, NULL);
	gate_wait(&gate, 1);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	gate_open(&gate, 2);
	while (!reached)
		sleep_ms(1);
	pthread_cancel(thread);
	PROMISE(join(thread) == PTHREAD_CANCELED);
	free(malloc(1000));
	printf("still here\n");
	return 0;
}
