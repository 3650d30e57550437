/* SPDX-License-Identifier: MIT */
/* A cancellation that comes while it is disabled is kept until it is enabled again. */
#include "promise.h"

static struct gate gate = GATE;
static int passed;

static void *run(void *unused)
{
	int before;
	PROMISE(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0 && before == PTHREAD_CANCEL_ENABLE);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	pthread_testcancel();
	sleep_ms(1);
	passed = 1;
	PROMISE(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
	pthread_testcancel();
	broken("the kept cancellation ends the thread", __func__, __LINE__);
	return unused;
}

int main(void)
{
	pthread_t thread = start(run, NULL);
	gate_wait(&gate, 1);
	pthread_cancel(thread);
	gate_open(&gate, 2);
	PROMISE(join(thread) == PTHREAD_CANCELED && passed);
	return 0;
}
