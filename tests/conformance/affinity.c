/* SPDX-License-Identifier: MIT */
/* Affinity is inherited, is set and read by pthread_t, and by attribute. */
#include "promise.h"

#include <sched.h>

static cpu_set_t wanted;

static void *look(void *unused)
{
	cpu_set_t set;
	PROMISE(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 && CPU_EQUAL(&set, &wanted));
	PROMISE(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_EQUAL(&set, &wanted));
	return unused;
}

static struct gate gate = GATE;

static void *wait_then_look(void *unused)
{
	gate_wait(&gate, 1);
	return look(unused);
}

int main(void)
{
	cpu_set_t all;
	pthread_attr_t attributes;
	pthread_t thread;
	PROMISE(sched_getaffinity(0, sizeof all, &all) == 0);
	int cpu = 0;
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&wanted);
	CPU_SET(cpu, &wanted);
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setaffinity_np(&attributes, sizeof wanted, &wanted) == 0);
	PROMISE(pthread_create(&thread, &attributes, look, NULL) == 0);
	join(thread);
	thread = start(wait_then_look, NULL);
	PROMISE(pthread_setaffinity_np(thread, sizeof wanted, &wanted) == 0);
	gate_open(&gate, 1);
	join(thread);
	PROMISE(pthread_setaffinity_np(pthread_self(), sizeof wanted, &wanted) == 0);
	in_thread(look, NULL);
	return 0;
}
