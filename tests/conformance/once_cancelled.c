/* SPDX-License-Identifier: MIT */
/* When the thread in a pthread_once routine is cancelled, the next caller runs the routine again. */
#include "promise.h"

static pthread_once_t control = PTHREAD_ONCE_INIT;
static struct gate gate = GATE;
static int runs;

static void initialise(void)
{
	if (++runs == 1) {
		gate_open(&gate, 1);
		for (;;)
			pause();
	}
}

static void *call(void *unused)
{
	pthread_once(&control, initialise);
	return unused;
}

int main(void)
{
	pthread_t first = start(call, NULL);
	gate_wait(&gate, 1);
	pthread_t second = start(call, NULL);
	sleep_ms(20);
	pthread_cancel(first);
	PROMISE(join(first) == PTHREAD_CANCELED && join(second) == NULL && runs == 2);
	call(NULL);
	PROMISE(runs == 2);
	return 0;
}
