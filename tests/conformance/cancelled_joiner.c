/* SPDX-License-Identifier: MIT */
/* A thread that joins this one and is cancelled can be joined at once: that is no deadlock. */
#include "promise.h"

static struct gate gate = GATE;

static void *join_main(void *main)
{
	gate_open(&gate, 1);
	PROMISE(pthread_join(*(pthread_t *)main, NULL) == 0);
	return NULL;
}

int main(void)
{
	pthread_t self = pthread_self(), thread = start(join_main, &self);
	gate_wait(&gate, 1);
	sleep_ms(50);
	PROMISE(pthread_cancel(thread) == 0 && join(thread) == PTHREAD_CANCELED);
	return 0;
}
