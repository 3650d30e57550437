/* SPDX-License-Identifier: MIT */
/*
 * How long events take: `vector_bench threads|processes PRODUCERS EVENTS LIST_BYTES FILE`.
 *
 * Each producer inserts EVENTS events of four key/value fields while a consumer writes them to FILE. Prints seconds from
 * the first insertion to the last, seconds until all are in the file, and events stored, lost and dropped.
 */
#define _GNU_SOURCE
#include "vector.h"
#include "vector_file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCERS_MAX = 64 };

static const struct ptv_field fields[] = {
	{"index", PTV_I64}, {"thread", PTV_U64}, {"value", PTV_F64}, {"path", PTV_STRING}};
static struct ptv_kind insertion = PTV_KIND("insertion", fields);

static struct ptv_vector vector;
static long events;

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void *produce(void *argument)
{
	struct ptv_producer *producer = aligned_alloc(64, (sizeof *producer + 63) & ~63ul);
	char path[] = "file-0000000.txt";
	ptv_producer_init(producer, &vector);
	for (long i = 0; i < events; i++) {
		struct ptv_event event;
		path[5 + (i & 3)] = (char)('0' + (i & 7));
		ptv_begin(producer, &insertion, &event);
		ptv_set_i64(&event, 0, i);
		ptv_set_u64(&event, 1, (uint64_t)(uintptr_t)argument);
		ptv_set_f64(&event, 2, (double)i * 0.5);
		ptv_set_string(&event, 3, path, 16);
		ptv_commit(&event);
	}
	ptv_producer_deinit(producer);
	free(producer);
	return NULL;
}

static int ended; /* by the consumer's thread, once the producers are */

static void *consume(void *argument)
{
	struct ptv_consumer *consumer = argument;
	int turn = 0;
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
		if (ptv_consumer_poll(consumer, ++turn % 64 == 0) == 0)
			usleep(200);
	return NULL;
}

static void run_threads(int producers)
{
	pthread_t thread[PRODUCERS_MAX];
	for (long i = 0; i < producers; i++)
		if (pthread_create(&thread[i], NULL, produce, (void *)i) != 0)
			exit(1);
	for (int i = 0; i < producers; i++)
		pthread_join(thread[i], NULL);
}

static void run_processes(int producers)
{
	for (long i = 0; i < producers; i++)
		if (fork() == 0) {
			produce((void *)i);
			_exit(0);
		}
	for (int i = 0; i < producers; i++)
		wait(NULL);
}

int main(int count, char **word)
{
	if (count != 6)
		return 2;
	int producers = atoi(word[2]);
	events = atol(word[3]);
	uint32_t list_size = (uint32_t)atol(word[4]);
	uint32_t lists = (uint32_t)((128ul << 20) / list_size);
	if (producers < 1 || producers > PRODUCERS_MAX)
		return 2;
	int fd = ptv_vector_init(&vector, lists > PTV_LIST_COUNT_MAX ? PTV_LIST_COUNT_MAX : lists, list_size);
	struct ptv_recorder recorder;
	if (fd < 0 || ptv_recorder_init(&recorder, fd, word[5], 0) < 0)
		return 1;
	pthread_t consumer;
	if (pthread_create(&consumer, NULL, consume, recorder.consumer) != 0)
		return 1;
	double began = now();
	if (strcmp(word[1], "processes") == 0)
		run_processes(producers);
	else
		run_threads(producers);
	double inserted = now();
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	pthread_join(consumer, NULL);
	ptv_consumer_finish(recorder.consumer);
	double stored = now();
	struct ptv_totals totals;
	ptv_consumer_totals(recorder.consumer, &totals);
	uint64_t dropped = 0;
	for (int why = 0; why < PTV_DROPS; why++)
		dropped += totals.dropped[why];
	printf("%.6f %.6f %llu %llu %llu\n", inserted - began, stored - began, (unsigned long long)totals.stored,
	       (unsigned long long)(totals.lost + totals.unwritten), (unsigned long long)dropped);
	ptv_recorder_deinit(&recorder);
	return totals.stored == (uint64_t)producers * (uint64_t)events ? 0 : 1;
}
