/* SPDX-License-Identifier: MIT */
/* Unit tests of event lists (preload/src/lists.h). One argument: the case to run; exits 0 when it holds. */
#define _GNU_SOURCE
#include "check.h"
#include "lists.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)

static struct ptw_lists *lists;

static void put(struct ptw_writer *writer, uint64_t value, unsigned frames)
{
	uint64_t stack[PTW_MAX_FRAMES];
	for (unsigned i = 0; i < frames; i++)
		stack[i] = value + i;
	struct ptw_record record = {.operation = PTW_MUTEX_LOCK, .frames = (uint16_t)frames, .object = value,
				    .result = (int64_t)writer->serial};
	ptw_writer_put(writer, &record, stack);
}

static unsigned char *data_of(uint32_t index)
{
	return (unsigned char *)lists + PTW_LISTS_DATA + (uint64_t)index * PTW_LIST_SIZE;
}

/* Walk one list to `end`, checking each finished record; counts into *good and *open. */
static void walk(uint32_t index, uint64_t end, uint64_t *good, uint64_t *open)
{
	unsigned char *data = data_of(index);
	for (uint64_t at = 0; at < end;) {
		struct ptw_record *record = (struct ptw_record *)(data + at);
		uint32_t size = LOAD(record->size);
		if (size == 0)
			return;
		if (size & PTW_RECORD_OPEN) {
			(*open)++;
			at += size & ~PTW_RECORD_OPEN;
			continue;
		}
		CHECK(size == PTW_RECORD_SIZE + record->frames * 8u);
		CHECK(record->operation == PTW_MUTEX_LOCK);
		CHECK((uint64_t)record->result == lists->list[index].serial);
		uint64_t *stack = (uint64_t *)(record + 1);
		for (unsigned i = 0; i < record->frames; i++)
			CHECK(stack[i] == record->object + i);
		(*good)++;
		at += size;
	}
}

static void records_come_back_in_order(void)
{
	struct ptw_writer writer;
	CHECK(ptw_writer_init(&writer, lists, 7, 1, -1) == 0);
	for (uint64_t i = 0; i < 1000; i++)
		put(&writer, i, i % 65);
	struct ptw_list *list = writer.list;
	uint64_t at = 0;
	for (uint64_t i = 0; i < 1000; i++) {
		struct ptw_record *record = (struct ptw_record *)(data_of(0) + at);
		CHECK(record->object == i && record->frames == i % 65);
		at += record->size;
	}
	CHECK(at == list->committed && at == list->reserved);
	CHECK(list->count == 1000 && list->attempts == 1000 && list->lost == 0 && list->tid == 7);
	ptw_writer_deinit(&writer);
	CHECK(list->state == PTW_LIST_LAST);
	put(&writer, 0, 0); /* after the end: counted, not written */
	CHECK(lists->unlisted == 0 || writer.list);
}

static void without_a_consumer_records_are_dropped_and_counted(void)
{
	struct ptw_writer writer;
	const uint64_t wanted = 200 * (PTW_LIST_SIZE / 568);
	CHECK(ptw_writer_init(&writer, lists, 7, 1, -1) == 0);
	for (uint64_t i = 0; i < wanted; i++)
		put(&writer, i, 64);
	uint64_t count = 0, attempts = 0, lost = 0, used = 0;
	for (uint32_t i = 0; i < lists->high; i++) {
		count += lists->list[i].count;
		attempts += lists->list[i].attempts;
		lost += lists->list[i].lost;
		used += lists->list[i].state != PTW_LIST_FREE;
	}
	CHECK(attempts == wanted && count + lost == wanted && lost > 0);
	CHECK(used <= PTW_LIST_BACKLOG + 2); /* bounded */
	lists->list[0] = (struct ptw_list){0}; /* the consumer is back */
	memset(data_of(0), 0, PTW_LIST_SIZE);
	__atomic_add_fetch(&lists->freed, 1, __ATOMIC_RELEASE);
	put(&writer, 1, 64);
	CHECK(writer.list == &lists->list[0] && lists->list[0].count == 1);
}

static void a_dead_consumer_is_noticed_at_once(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	close(ends[0]); /* the write end of a pipe without reader: POLLERR */
	struct ptw_writer writer;
	CHECK(ptw_writer_init(&writer, lists, 7, 1, ends[1]) == 0);
	uint64_t since = ptw_monotonic_ns();
	for (uint64_t i = 0; i < 200 * (PTW_LIST_SIZE / 568); i++)
		put(&writer, i, 64);
	CHECK(ptw_monotonic_ns() - since < 2000000000ull + PTW_PATIENCE_NS / 2);
	CHECK(writer.dropping);
}

/* --- a consumer beside producers --- */

static uint64_t consumed, consumed_open, finished_writers;

static void consume_once(bool last)
{
	for (uint32_t i = 0; i < LOAD(lists->high); i++) {
		struct ptw_list *list = &lists->list[i];
		uint32_t state = LOAD(list->state);
		if (state != PTW_LIST_FULL && state != PTW_LIST_LAST && !(last && state == PTW_LIST_OPEN))
			continue;
		CHECK(LOAD(list->committed) <= PTW_LIST_SIZE);
		walk(i, list->reserved, &consumed, &consumed_open);
		memset(data_of(i), 0, PTW_LIST_SIZE);
		uint64_t *words = (uint64_t *)list;
		for (unsigned w = 1; w < 8; w++)
			__atomic_store_n(&words[w], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&list->state, PTW_LIST_FREE, __ATOMIC_RELEASE);
		__atomic_add_fetch(&lists->freed, 1, __ATOMIC_RELEASE);
	}
}

enum { WRITERS = 4, EACH = 60000 };

static void *produce(void *serial)
{
	struct ptw_writer writer;
	CHECK(ptw_writer_init(&writer, lists, 7, (uint64_t)serial, -1) == 0);
	for (uint64_t i = 0; i < EACH; i++)
		put(&writer, i << 8, i % 20);
	ptw_writer_deinit(&writer);
	__atomic_add_fetch(&finished_writers, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void threads_lose_nothing_while_there_is_a_consumer(void)
{
	pthread_t threads[WRITERS];
	for (uint64_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, produce, (void *)(i + 1)) == 0);
	while (__atomic_load_n(&finished_writers, __ATOMIC_ACQUIRE) < WRITERS)
		consume_once(false);
	consume_once(false);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	CHECK(consumed == (uint64_t)WRITERS * EACH && consumed_open == 0);
	CHECK(lists->live == 0);
}

/* --- signals --- */

static struct ptw_writer interrupted;
static volatile uint64_t handled;
static sigjmp_buf away;
static volatile int jump;

static void handler(int number)
{
	(void)number;
	for (unsigned i = 0; i < 3; i++)
		put(&interrupted, 0x5000, 3);
	handled += 3;
	if (jump && handled % 5 == 0)
		siglongjmp(away, 1);
}

static void alarm_often(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER * 0};
	struct itimerval often = {{0, 50}, {0, 50}};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

static void alarm_never(void)
{
	struct itimerval never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &never, NULL);
}

static void totals(uint64_t *good, uint64_t *open, uint64_t *lost, uint64_t *attempts)
{
	*good = *open = *lost = *attempts = 0;
	for (uint32_t i = 0; i < lists->high; i++) {
		if (lists->list[i].state == PTW_LIST_FREE)
			continue;
		walk(i, lists->list[i].reserved, good, open);
		*lost += lists->list[i].lost;
		*attempts += lists->list[i].attempts;
	}
}

static void handlers_that_log_corrupt_nothing(void)
{
	uint64_t good, open, lost, attempts, wanted = 0;
	CHECK(ptw_writer_init(&interrupted, lists, 7, 1, -1) == 0);
	alarm_often();
	for (uint64_t since = ptw_monotonic_ns(); ptw_monotonic_ns() - since < 300000000; wanted++)
		if (lists->high < PTW_LIST_BACKLOG - 2)
			put(&interrupted, wanted << 8, wanted % 30);
		else
			break;
	alarm_never();
	put(&interrupted, 1 << 8, 1); /* makes visible what a handler logged in the last moment of another put */
	wanted++;
	totals(&good, &open, &lost, &attempts);
	CHECK(handled > 0 && open == 0 && lost == 0);
	CHECK(good == wanted + handled && attempts == good);
	CHECK(interrupted.frame == 0 && interrupted.list->committed == interrupted.list->reserved);
}

static void handlers_that_jump_away_cost_one_record_at_most(void)
{
	uint64_t good, open, lost, attempts;
	static volatile uint64_t wanted, jumps;
	jump = 1;
	CHECK(ptw_writer_init(&interrupted, lists, 7, 1, -1) == 0);
	alarm_often();
	uint64_t since = ptw_monotonic_ns();
	if (sigsetjmp(away, 1))
		jumps++;
	while (ptw_monotonic_ns() - since < 300000000 && lists->high < PTW_LIST_BACKLOG - 2) {
		wanted++;
		put(&interrupted, wanted << 8, wanted % 30);
	}
	alarm_never();
	put(&interrupted, 1 << 8, 1);
	wanted++;
	totals(&good, &open, &lost, &attempts);
	CHECK(jumps > 0 && lost <= jumps && attempts == good + lost);
	CHECK(good + open <= attempts + jumps);
	CHECK(open <= jumps && good <= attempts && good + jumps >= wanted + handled);
	CHECK(interrupted.frame == 0 && interrupted.list->committed == interrupted.list->reserved);
}

/* --- death --- */

static void a_killed_writer_leaves_readable_lists(void)
{
	for (unsigned round = 0; round < 20; round++) {
		uint64_t good, open, lost, attempts;
		int ready[2];
		char byte;
		CHECK(pipe(ready) == 0);
		pid_t child = fork();
		if (child == 0) {
			ptw_writer_init(&interrupted, lists, 7, 1, -1);
			for (uint64_t i = 0; lists->high < 50; i++) {
				put(&interrupted, i << 8, i % 30);
				/* it is killed when there is something to read, however seldom it gets the processor */
				if (i == 0 && write(ready[1], "x", 1) != 1)
					_exit(1);
			}
			pause();
		}
		CHECK(read(ready[0], &byte, 1) == 1);
		usleep(200 + round * 50);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		totals(&good, &open, &lost, &attempts);
		CHECK(open <= 1 && good + open + 1 >= attempts && good <= attempts && good > 0);
		for (uint32_t i = 0; i < lists->high; i++) {
			memset(data_of(i), 0, PTW_LIST_SIZE);
			lists->list[i] = (struct ptw_list){0};
		}
		lists->high = lists->live = 0;
		close(ready[0]);
		close(ready[1]);
	}
}

static void a_full_table_of_lists_counts_what_it_cannot_hold(void)
{
	static struct ptw_writer writers[PTW_LIST_COUNT + 1];
	for (uint64_t i = 0; i < PTW_LIST_COUNT; i++)
		CHECK(ptw_writer_init(&writers[i], lists, 7, i + 1, -1) == 0);
	CHECK(ptw_writer_init(&writers[PTW_LIST_COUNT], lists, 7, 5000, -1) < 0);
	CHECK(ptw_list_index(&writers[PTW_LIST_COUNT]) == (uint32_t)PTW_LIST_NONE);
	put(&writers[PTW_LIST_COUNT], 1, 1);
	CHECK(lists->unlisted == 1);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(records_come_back_in_order),
	CASE(without_a_consumer_records_are_dropped_and_counted),
	CASE(a_dead_consumer_is_noticed_at_once),
	CASE(threads_lose_nothing_while_there_is_a_consumer),
	CASE(handlers_that_log_corrupt_nothing),
	CASE(handlers_that_jump_away_cost_one_record_at_most),
	CASE(a_killed_writer_leaves_readable_lists),
	CASE(a_full_table_of_lists_counts_what_it_cannot_hold),
};

int main(int count, char **words)
{
	int fd = ptw_lists_init(NULL, &lists);
	CHECK(fd >= 0 && lists->magic == PTW_LISTS_MAGIC);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	ptw_lists_deinit(lists);
	close(fd);
	return 0;
}
