/* SPDX-License-Identifier: MIT */
/* pthread_self() in a thread is what pthread_create gave its creator, and differs between living threads. */
#include "promise.h"

static pthread_t selves[8];
static struct gate gate = GATE;

static void *keep(void *argument)
{
	*(pthread_t *)argument = pthread_self();
	gate_wait(&gate, 1);
	PROMISE(pthread_equal(*(pthread_t *)argument, pthread_self()));
	return NULL;
}

int main(void)
{
	pthread_t threads[8], me = pthread_self();
	for (int i = 0; i < 8; i++)
		threads[i] = start(keep, &selves[i]);
	gate_open(&gate, 1);
	for (int i = 0; i < 8; i++) {
		for (int k = 0; k < i; k++)
			PROMISE(!pthread_equal(threads[i], threads[k]));
		PROMISE(!pthread_equal(threads[i], me));
	}
	for (int i = 0; i < 8; i++) {
		join(threads[i]);
		PROMISE(pthread_equal(threads[i], selves[i]));
	}
	PROMISE(pthread_equal(me, pthread_self()));
	return 0;
}
