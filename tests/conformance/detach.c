/* SPDX-License-Identifier: MIT */
/* Detached threads, by attribute, by their creator and by themselves, run to their end. */
#include "promise.h"

static struct gate gate = GATE;
static int ended;

static void *run(void *argument)
{
	if (argument)
		PROMISE(pthread_detach(pthread_self()) == 0);
	pthread_mutex_lock(&gate.mutex);
	ended++;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
	return NULL;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int state;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	PROMISE(pthread_attr_getdetachstate(&attributes, &state) == 0 && state == PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < 20; i++) {
		PROMISE(pthread_create(&thread, &attributes, run, NULL) == 0);
		start(run, (void *)1);
		pthread_detach(start(run, NULL));
	}
	pthread_mutex_lock(&gate.mutex);
	while (ended < 60)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
	return 0;
}
