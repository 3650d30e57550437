/* SPDX-License-Identifier: MIT */
/* The peer of vector_bench: `lttng_bench threads|processes PRODUCERS EVENTS`, the same events through LTTng-UST. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long events;

static void *produce(void *argument)
{
	char path[] = "file-0000000.txt";
	for (long i = 0; i < events; i++) {
		path[5 + (i & 3)] = (char)('0' + (i & 7));
		lttng_ust_tracepoint(ptweave_bench, insertion, i, (uint64_t)(uintptr_t)argument, (double)i * 0.5, path);
	}
	return NULL;
}

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int main(int count, char **word)
{
	pthread_t thread[64];
	if (count != 4)
		return 2;
	int producers = atoi(word[2]);
	events = atol(word[3]);
	if (producers < 1 || producers > 64)
		return 2;
	double began = now();
	if (strcmp(word[1], "processes") == 0) {
		for (long i = 0; i < producers; i++)
			if (fork() == 0) {
				produce((void *)i);
				_exit(0);
			}
		for (int i = 0; i < producers; i++)
			wait(NULL);
	} else {
		for (long i = 0; i < producers; i++)
			if (pthread_create(&thread[i], NULL, produce, (void *)i) != 0)
				return 1;
		for (int i = 0; i < producers; i++)
			pthread_join(thread[i], NULL);
	}
	printf("%.6f\n", now() - began);
	return 0;
}
