/* SPDX-License-Identifier: MIT */
/* Scheduling policy and parameters are read and set by pthread_t and by attribute, and are each thread's own. */
#include "promise.h"

#include <sched.h>

static struct gate gate = GATE;

static void *batch(void *unused)
{
	int policy;
	struct sched_param parameters;
	PROMISE(pthread_getschedparam(pthread_self(), &policy, &parameters) == 0);
	PROMISE(policy == SCHED_BATCH && parameters.sched_priority == 0 && sched_getscheduler(0) == SCHED_BATCH);
	return unused;
}

static void *wait_then_batch(void *unused)
{
	gate_wait(&gate, 1);
	return batch(unused);
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int policy;
	struct sched_param parameters = {0};
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	PROMISE(pthread_attr_setschedpolicy(&attributes, SCHED_OTHER) == 0);
	PROMISE(pthread_create(&thread, &attributes, wait_then_batch, NULL) == 0);
	PROMISE(pthread_setschedparam(thread, SCHED_BATCH, &parameters) == 0);
	PROMISE(pthread_getschedparam(thread, &policy, &parameters) == 0 && policy == SCHED_BATCH);
	gate_open(&gate, 1);
	join(thread);
	PROMISE(pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER);
	PROMISE(pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters) == 0);
	in_thread(batch, NULL);
	return 0;
}
