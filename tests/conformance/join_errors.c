/* SPDX-License-Identifier: MIT */
/* Joining oneself is EDEADLK; joining or detaching a detached thread is EINVAL. */
#include "promise.h"

static struct gate gate = GATE;

static void *wait_for_gate(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

int main(void)
{
	pthread_t detached = start(wait_for_gate, NULL);
	PROMISE(pthread_detach(detached) == 0);
	PROMISE(pthread_join(detached, NULL) == EINVAL && pthread_detach(detached) == EINVAL);
	gate_open(&gate, 1);
	PROMISE(pthread_join(pthread_self(), NULL) == EDEADLK);
	return 0;
}
