/* SPDX-License-Identifier: MIT */
/*
 * Writes a file of events: `vector_write FILE EVENTS RING LIST_BYTES [stop]`. Events of two kinds, from two threads and a
 * fork child, with fields of every type (some missing), pairs of every type, names that are long, text that is no
 * UTF-8, and now and then something that must be cut. With `stop` it kills itself instead of closing the file.
 */
#define _GNU_SOURCE
#include "vector.h"
#include "vector_file.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ptv_field all_fields[] = {{"i", PTV_I64},     {"u", PTV_U64},    {"f", PTV_F64},
					      {"text", PTV_STRING}, {"raw", PTV_BYTES}, {"stack", PTV_WORDS},
					      {"t", PTV_I64}};
static const struct ptv_field few_fields[] = {{"number", PTV_U64}};
static struct ptv_kind all = PTV_KIND("all", all_fields), few = PTV_KIND("few", few_fields);
static struct ptv_key size_key = PTV_KEY("size"), ratio_key = PTV_KEY("ratio"), name_key = PTV_KEY("name"),
		      bytes_key = PTV_KEY("bytes"), words_key = PTV_KEY("words"), delta_key = PTV_KEY("delta"),
		      long_key = PTV_KEY("a key whose name is so long that it goes into the event itself, \xc3\xa9");

static struct ptv_vector vector;
static struct ptv_recorder recorder;
static uint64_t events;

static void log_pairs(struct ptv_event *event, uint64_t i)
{
	const uint64_t words[] = {i, 0xffffffffffffffffull};
	ptv_add_u64(event, &size_key, i);
	ptv_add_i64(event, &delta_key, -(int64_t)i);
	ptv_add_f64(event, &ratio_key, (double)i / 3);
	ptv_add_string(event, &name_key, "caf\xc3\xa9 \xff\x00 end", 12);
	ptv_add(event, &bytes_key, PTV_BYTES, 3, "\x00\x01\xfe");
	ptv_add(event, &words_key, PTV_WORDS, sizeof words, words);
	ptv_add_string(event, &long_key, "value", 5);
}

static void log_all(struct ptv_producer *producer, uint64_t i)
{
	static const char text[] = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 \xed\xa0\x80 \xc0\xaf plain";
	struct ptv_event event;
	uint64_t stack[5] = {i, i + 1, i + 2, i + 3, i + 4};
	ptv_begin(producer, &all, &event);
	ptv_set_i64(&event, 0, -(int64_t)i);
	ptv_set_u64(&event, 1, i * 0x100000001ull);
	if (i % 3)
		ptv_set_f64(&event, 2, (double)i / 7);
	ptv_set_string(&event, 3, text, i % sizeof text);
	if (i % 2)
		ptv_set_data(&event, 4, text, i % 9);
	ptv_set_words(&event, 5, stack, i % 6);
	ptv_set_i64(&event, 6, 42);
	if (i % 5 == 0)
		log_pairs(&event, i);
	if (i % 1000 == 999) {
		static char large[PTV_EVENT_MAX];
		memset(large, 'x', sizeof large);
		ptv_set_string(&event, 3, large, sizeof large);
	}
	ptv_commit(&event);
}

static void *produce(void *first)
{
	struct ptv_producer *producer = malloc(sizeof *producer);
	if (!producer)
		abort();
	ptv_producer_init(producer, &vector);
	for (uint64_t i = 0; i < events; i++) {
		struct ptv_event event;
		log_all(producer, (uint64_t)(uintptr_t)first + i);
		ptv_begin(producer, &few, &event);
		ptv_set_u64(&event, 0, (uint64_t)(uintptr_t)first + i);
		ptv_commit(&event);
		if (!first && i % 50 == 0)
			ptv_consumer_poll(recorder.consumer, true);
	}
	ptv_producer_deinit(producer);
	free(producer);
	return NULL;
}

static int ended;

static void *produce_and_say_so(void *first)
{
	produce(first);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void poll_and_rest(void)
{
	ptv_consumer_poll(recorder.consumer, true);
	usleep(300);
}

int main(int count, char **word)
{
	if (count < 5)
		return 2;
	events = strtoull(word[2], NULL, 10);
	int fd = ptv_vector_init(&vector, 64, (uint32_t)atol(word[4]));
	int error = fd < 0 ? fd : ptv_recorder_init(&recorder, fd, word[1], strtoull(word[3], NULL, 10));
	if (error < 0) {
		fprintf(stderr, "%s\n", strerror(-error));
		return 1;
	}
	produce(NULL);
	pthread_t thread;
	if (pthread_create(&thread, NULL, produce_and_say_so, (void *)1000000) != 0)
		return 1;
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
		poll_and_rest();
	pthread_join(thread, NULL);
	pid_t child = fork();
	if (child == 0) {
		produce((void *)2000000);
		_exit(0);
	}
	while (waitpid(child, NULL, WNOHANG) == 0)
		poll_and_rest();
	if (count > 5) {
		ptv_consumer_poll(recorder.consumer, true);
		raise(SIGKILL);
	}
	ptv_consumer_finish(recorder.consumer);
	ptv_recorder_deinit(&recorder);
	return 0;
}
