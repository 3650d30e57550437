/* SPDX-License-Identifier: MIT */
/* Unit tests of the event vector (preload/src/vector.h) and its consumer. One argument: the case to run. */
#define _GNU_SOURCE
#include "check.h"
#include "vector_check.h"
#include "vector_file.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LISTS = 64, FORKS = 200 };

static struct ptv_vector vector;
static struct ptv_consumer *consumer;
static struct check *check;
static struct ptv_producer producer; /* the main thread's */
static int memory;

static void begin(uint32_t lists, uint32_t list_size, uint64_t whos)
{
	memory = ptv_vector_init(&vector, lists, list_size);
	CHECK(memory >= 0);
	check = check_create(whos);
	struct ptv_sink sink = check_sink(check);
	CHECK(ptv_consumer_create(memory, &sink, &consumer) == 0);
	ptv_producer_init(&producer, &vector);
}

static void end(void)
{
	ptv_consumer_destroy(consumer);
	check_destroy(check);
	ptv_vector_deinit(&vector);
	close(memory);
}

/* Everything is taken; begun = stored + lost + unfinished must hold, with so many unfinished. */
static struct ptv_totals finished(uint64_t unfinished)
{
	struct ptv_totals totals;
	CHECK(ptv_consumer_finish(consumer) >= 0);
	ptv_consumer_totals(consumer, &totals);
	if (check->errors)
		fprintf(stderr, "%s\n", check->first_error);
	CHECK(check->errors == 0);
	CHECK(totals.corrupt == 0 && totals.unwritten == 0);
	CHECK(totals.stored == check->events);
	CHECK(totals.begun == totals.stored + totals.lost + unfinished);
	return totals;
}

static void *consume(void *ended)
{
	while (!__atomic_load_n((int *)ended, __ATOMIC_ACQUIRE))
		if (ptv_consumer_poll(consumer, true) == 0)
			usleep(100);
	return NULL;
}

/* --- one thread -------------------------------------------------------------------------------------------------- */

static void events_come_back(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	for (uint64_t i = 0; i < 20000; i++) { /* several lists: events move from one to the next */
		CHECK(check_log(&producer, 0, i) == 0);
		if (i % 1000 == 0)
			CHECK(ptv_consumer_poll(consumer, i % 3000 == 0) >= 0);
	}
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.stored == 20000 && totals.lost == 0);
	CHECK(check_is_whole(&check->who[0]));
	end();
}

static void a_wrong_bit_is_seen(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	for (uint64_t i = 0; i < 100; i++)
		check_log(&producer, 0, i);
	vector.data[2000] ^= 4;
	ptv_consumer_finish(consumer);
	CHECK(check->errors > 0);
	end();
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	for (uint64_t i = 0; i < 100; i++)
		if (i != 50)
			check_log(&producer, 0, i);
	ptv_consumer_finish(consumer);
	CHECK(check->errors == 0 && !check_is_whole(&check->who[0]));
	end();
}

static const struct ptv_field large_fields[] = {{"data", PTV_BYTES}, {"more", PTV_BYTES}};
static struct ptv_kind large = PTV_KIND("large", large_fields);
static uint32_t largest, truncated, large_events;

static int measure(void *self, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data, bool last)
{
	(void)self, (void)list, (void)last;
	for (uint32_t at = 0; at < chunk->bytes;) {
		const struct ptv_record *record = (const struct ptv_record *)(data + at);
		largest = record->size > largest ? record->size : largest;
		truncated += record->flags & PTV_TRUNCATED;
		large_events++;
		at += record->size;
	}
	return 0;
}

static void what_is_too_large_is_cut_and_says_so(void)
{
	memory = ptv_vector_init(&vector, LISTS, PTV_LIST_SIZE_MIN);
	CHECK(memory >= 0);
	struct ptv_sink sink = {NULL, check_name, measure, check_save};
	struct check names = {0};
	sink.self = &names;
	CHECK(ptv_consumer_create(memory, &sink, &consumer) == 0);
	ptv_producer_init(&producer, &vector);
	char *data = calloc(1, 1 << 20);
	static struct ptv_key key = PTV_KEY("and");
	for (int i = 0; i < 10; i++) {
		struct ptv_event event;
		CHECK(ptv_begin(&producer, &large, &event) == 0);
		ptv_set_data(&event, 0, data, 100000);
		if (i % 2) {
			ptv_set_data(&event, 1, data, 1 << 20);
			ptv_add_string(&event, &key, data, 1 << 20);
			ptv_add_u64(&event, &key, 1);
		}
		CHECK(ptv_commit(&event) == 0);
	}
	CHECK(ptv_consumer_finish(consumer) >= 0);
	CHECK(large_events == 10 && truncated == 5 && largest == PTV_EVENT_MAX);
	free(data);
	ptv_consumer_destroy(consumer);
	ptv_vector_deinit(&vector);
	close(memory);
}

static void keys_without_a_place_go_into_the_event(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	static char names[6000][100];
	for (uint64_t i = 0; i < 6000; i++) {
		snprintf(names[i], sizeof names[i], "key %llu%s", (unsigned long long)i,
			 i % 100 ? "" : " with a name that is far longer than a place in the table has room for");
		struct ptv_key key = PTV_KEY(names[i]);
		CHECK(check_log_key(&producer, 0, i, &key) == 0);
	}
	ptv_producer_deinit(&producer);
	finished(0);
	CHECK(check_is_whole(&check->who[0]));
	end();
}

static void a_kind_that_cannot_be_is_counted(void)
{
	static const struct ptv_field twice[] = {{"a", PTV_I64}, {"a", PTV_I64}};
	static struct ptv_kind bad = PTV_KIND("bad", twice);
	struct ptv_event event;
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	CHECK(ptv_begin(&producer, &bad, &event) == -EINVAL);
	ptv_set_u64(&event, 0, 1);
	ptv_set_string(&event, 0, "x", 1);
	CHECK(ptv_commit(&event) == -ENOBUFS);
	static char names[PTV_KINDS + 1][24];
	static struct ptv_kind kinds[PTV_KINDS + 1];
	for (int i = 0; i <= PTV_KINDS; i++) {
		snprintf(names[i], sizeof names[i], "kind %d", i);
		kinds[i] = (struct ptv_kind){names[i], check_fields, 4, 0};
		CHECK(ptv_begin(&producer, &kinds[i], &event) == (i < PTV_KINDS ? 0 : -ENOSPC));
		ptv_cancel(&event);
	}
	struct ptv_totals totals;
	CHECK(ptv_consumer_finish(consumer) >= 0);
	ptv_consumer_totals(consumer, &totals);
	CHECK(totals.dropped[PTV_DROP_KIND] == 2 && totals.lost == PTV_KINDS && totals.stored == 0);
	end();
}

/* --- signals ----------------------------------------------------------------------------------------------------- */

static volatile int in_child; /* of a handler that forked */

static void poll_without_signals(void)
{
	sigset_t alarm, before;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, &before);
	if (!in_child)
		CHECK(ptv_consumer_poll(consumer, false) >= 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static uint64_t handler_index;
static volatile int handlers;

static void log_in_handler(int number)
{
	(void)number;
	int before = errno;
	check_log(&producer, 1, handler_index++);
	handlers++;
	errno = before;
}

static void every(long us, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	struct itimerval timer = {{0, us}, {0, us}};
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, us ? &timer : &(struct itimerval){0}, NULL) == 0);
}

static void handlers_log_in_the_midst_of_events(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 2);
	every(100, log_in_handler, 0);
	uint64_t done = 0;
	while (handlers < 300 || done < 20000) {
		CHECK(check_log(&producer, 0, done++) == 0);
		if (done % 512 == 0)
			CHECK(ptv_consumer_poll(consumer, true) >= 0);
	}
	every(0, log_in_handler, 0);
	ptv_producer_deinit(&producer);
	finished(0);
	CHECK(check->who[0].count == done && check->who[1].count == handler_index);
	CHECK(check_is_whole(&check->who[0]) && check_is_whole(&check->who[1]));
	end();
}

/* With an event open: what a handler that comes exactly then does. */
static void a_handler_between_begin_and_commit_takes_another_lane(void)
{
	struct sigaction action = {.sa_handler = log_in_handler};
	begin(LISTS, PTV_LIST_SIZE_MIN, 2);
	sigaction(SIGUSR1, &action, NULL);
	for (uint64_t i = 0; i < 3; i++) {
		struct ptv_event event;
		CHECK(ptv_begin(&producer, &checked, &event) == 0);
		CHECK(event.lane == &producer.lane[vector.epoch & 1][0]);
		ptv_set_u64(&event, 0, 0);
		ptv_set_u64(&event, 1, i);
		raise(SIGUSR1);
		char text[CHECK_TEXT];
		check_fill(text, check_length(0, i), 0, i);
		ptv_set_string(&event, 2, text, check_length(0, i));
		raise(SIGUSR1);
		if (i % 7 == 0)
			ptv_add_u64(&event, &check_key, i);
		ptv_set_u64(&event, 3, i * 17 + check_length(0, i));
		CHECK(ptv_commit(&event) == 0);
	}
	ptv_producer_deinit(&producer);
	finished(0);
	CHECK(check->who[0].count == 3 && check->who[1].count == 6);
	end();
}

static sigjmp_buf back;

static void jump(int number)
{
	(void)number;
	handlers++;
	siglongjmp(back, 1);
}

static void events_that_a_handler_jumped_away_from_are_given_up(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	volatile uint64_t index = 0;
	every(200, jump, SA_NODEFER);
	if (sigsetjmp(back, 1) != 0)
		index++; /* it may be there or not: its number is not used again */
	while (handlers < 300) {
		check_log(&producer, 0, index);
		index++;
		if (index % 512 == 0)
			poll_without_signals();
	}
	every(0, SIG_IGN, 0);
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.stored + totals.lost <= index + 1 && totals.stored + totals.lost + 301 >= index);
	CHECK(totals.dropped[PTV_DROP_NESTED] == 0);
	end();
}

__attribute__((noinline)) static void begin_deeper(struct ptv_event *event)
{
	CHECK(ptv_begin(&producer, &checked, event) == 0);
	CHECK(raise(SIGUSR1) == 0);
}

/* Jumped away from while it is open, again and again: lanes are found again when all are busy. */
static void lanes_are_found_again(void)
{
	struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	sigaction(SIGUSR1, &action, NULL);
	for (volatile int i = 0; i < 50; i++)
		if (sigsetjmp(back, 1) == 0) {
			struct ptv_event event;
			begin_deeper(&event);
		}
	struct ptv_event event; /* not below those that were jumped away from */
	CHECK(ptv_begin(&producer, &checked, &event) == 0);
	ptv_cancel(&event);
	CHECK(check_log(&producer, 0, 0) == 0);
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.begun == 52 && totals.lost == 51 && totals.stored == 1);
	end();
}

static int deeper(int depth)
{
	struct ptv_event event;
	int error = ptv_begin(&producer, &checked, &event);
	if (error == 0 && depth < 20) {
		CHECK(event.record != NULL);
		error = deeper(depth + 1);
		ptv_cancel(&event);
	}
	return error;
}

static void one_open_event_too_many_is_counted(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	CHECK(deeper(0) == -EBUSY);
	CHECK(check_log(&producer, 0, 0) == 0);
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.dropped[PTV_DROP_NESTED] == 1 && totals.lost == PTV_LANES && totals.stored == 1);
	end();
}

/* Where none of them lies above: the first is given up, and says so when it is committed. */
static void one_event_too_many_of_one_function_costs_the_first(void)
{
	struct ptv_event event[PTV_LANES + 1];
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	for (int i = 0; i <= PTV_LANES; i++)
		CHECK(ptv_begin(&producer, &checked, &event[i]) == 0);
	ptv_set_u64(&event[0], 0, 7);
	CHECK(ptv_commit(&event[0]) == -ESTALE);
	for (int i = 1; i <= PTV_LANES; i++)
		ptv_cancel(&event[i]);
	CHECK(check_log(&producer, 0, 0) == 0);
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.lost == PTV_LANES + 1 && totals.stored == 1);
	end();
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static void wait_for(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_fork_in_the_midst_leaves_the_event_to_the_parent(void)
{
	struct ptv_event event;
	begin(LISTS, PTV_LIST_SIZE_MIN, 3);
	check_log(&producer, 0, 0);
	CHECK(ptv_begin(&producer, &checked, &event) == 0);
	ptv_set_u64(&event, 0, 0);
	pid_t child = fork();
	if (child == 0) {
		for (uint64_t i = 0; i < 5000; i++)
			check_log(&producer, 1, i);
		ptv_set_u64(&event, 0, 999);
		ptv_set_string(&event, 2, "the child's", 11);
		CHECK(ptv_commit(&event) == -ESTALE);
		ptv_producer_deinit(&producer);
		_exit(0);
	}
	wait_for(child);
	char text[CHECK_TEXT];
	size_t length = check_length(0, 1);
	check_fill(text, length, 0, 1);
	ptv_set_u64(&event, 1, 1);
	ptv_set_string(&event, 2, text, length);
	ptv_set_u64(&event, 3, 17 + length);
	CHECK(ptv_commit(&event) == 0);
	check_log(&producer, 0, 2);
	ptv_producer_deinit(&producer);
	finished(0);
	CHECK(check->who[0].count == 3 && check->who[1].count == 5000);
	CHECK(check_is_whole(&check->who[0]) && check_is_whole(&check->who[1]));
	end();
}

static void child_hook(void) { ptv_vector_forked(&vector); }

/* One signal, and no next one before it is asked for: a fork that takes longer than a period of every() would leave
 * the interrupted program no time at all, so that each handler came back to back in one place. */
static void once(long us)
{
	CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, us}}, NULL) == 0);
}

static void fork_in_handler(int number)
{
	(void)number;
	if (in_child)
		return;
	handlers++;
	pid_t child = fork();
	if (child == 0) { /* goes on in whatever was interrupted */
		in_child = handlers;
		for (uint64_t i = 0; i < 20; i++)
			check_log(&producer, (uint64_t)in_child, i);
	} else if (handlers < FORKS) {
		once(500);
	}
}

static void handlers_that_fork_harm_no_event(void)
{
	begin(1024, PTV_LIST_SIZE_MIN, FORKS + 1);
	check->zero_is = (uint32_t)getpid(); /* a child that goes on may log the event it interrupted as its own */
	CHECK(pthread_atfork(NULL, NULL, child_hook) == 0);
	every(0, fork_in_handler, SA_RESTART);
	once(500);
	uint64_t index = 0;
	while (!in_child && handlers < FORKS) {
		check_log(&producer, 0, index++);
		if (index % 64 == 0)
			poll_without_signals(); /* a child must not go on in the midst of that */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	if (in_child) {
		for (uint64_t i = 20; i < 40; i++)
			check_log(&producer, (uint64_t)in_child, i);
		ptv_producer_deinit(&producer);
		_exit(0);
	}
	every(0, SIG_IGN, 0);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	ptv_producer_deinit(&producer);
	CHECK(ptv_consumer_finish(consumer) >= 0);
	if (check->errors)
		fprintf(stderr, "%s\n", check->first_error);
	CHECK(check->errors == 0);
	CHECK(check->who[0].count == index && check_is_whole(&check->who[0]));
	for (int i = 1; i <= FORKS; i++)
		CHECK(check->who[i].count == 40 && check_is_whole(&check->who[i]));
	end();
}

/* --- consumers --------------------------------------------------------------------------------------------------- */

static void without_a_consumer_it_stops_growing_and_goes_on(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	uint64_t index = 0;
	vector.head->heard = 0; /* long ago */
	while (check_log(&producer, 0, index) != 0 && index < 1000)
		index++;
	CHECK(index == 1000 && vector.head->high == 0); /* not one list more than there were */
	CHECK(ptv_consumer_poll(consumer, true) >= 0);
	for (; index < 2000; index++)
		CHECK(check_log(&producer, 0, index) == 0); /* it is heard again */
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t heard = vector.head->heard; /* the time since then is what counts, not the lists that are left */
	CHECK(heard > 0 && heard <= (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
	vector.head->heard = 0;
	uint64_t dropped = 0;
	for (; index < 50000; index++)
		dropped += check_log(&producer, 0, index) != 0;
	CHECK(dropped > 0 && vector.head->high == 1);
	CHECK(ptv_consumer_poll(consumer, true) >= 0);
	CHECK(check_log(&producer, 0, index++) == 0);
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.stored + totals.lost + totals.dropped[PTV_DROP_FULL] == index + 1);
	CHECK(totals.lost + totals.dropped[PTV_DROP_FULL] == dropped + 1001);
	end();
}

static void *log_many(void *who)
{
	struct ptv_producer *mine = malloc(sizeof *mine);
	ptv_producer_init(mine, &vector);
	for (uint64_t i = 0; i < 30000; i++)
		if (check_log(mine, (uint64_t)(uintptr_t)who, i) != 0)
			abort();
	ptv_producer_deinit(mine);
	free(mine);
	return NULL;
}

/* Six lists for four threads: most of the time they wait for the consumer. */
static void threads_lose_nothing(void)
{
	pthread_t thread[4], drainer;
	int ended = 0;
	begin(6, PTV_LIST_SIZE_MIN, 4);
	CHECK(pthread_create(&drainer, NULL, consume, &ended) == 0);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, log_many, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	pthread_join(drainer, NULL);
	struct ptv_totals totals = finished(0);
	CHECK(totals.stored == 120000 && totals.lost == 0);
	for (int i = 0; i < 4; i++)
		CHECK(check->who[i].count == 30000 && check_is_whole(&check->who[i]));
	CHECK(vector.head->high <= 6);
	end();
}

/* What a thread does while its consumer looks: with every fourth chunk it goes on in further lists, of which some lie
 * where the consumer has been already. Chunks must come in the order they were written in. */
static struct {
	struct ptv_sink sink;
	uint64_t index, wanted, sequence, chunks, behind;
	uint32_t list, offset;
} meanwhile;

static int write_meanwhile(void *self, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data,
			   bool last)
{
	if (chunk->bytes) {
		CHECK(chunk->sequence == meanwhile.sequence ? chunk->offset == meanwhile.offset
							    : chunk->sequence == meanwhile.sequence + 1 && chunk->offset == 0);
		meanwhile.behind += list < meanwhile.list;
		meanwhile.list = list;
		meanwhile.sequence = chunk->sequence;
		meanwhile.offset = chunk->offset + chunk->bytes;
	}
	uint64_t end = meanwhile.index + (++meanwhile.chunks % 4 ? 0 : 5000);
	while (meanwhile.index < end && meanwhile.index < meanwhile.wanted)
		CHECK(check_log(&producer, 0, meanwhile.index++) == 0);
	return meanwhile.sink.chunk(self, list, chunk, data, last);
}

static void what_a_thread_writes_comes_in_its_order(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	meanwhile.sink = check_sink(check);
	struct ptv_sink sink = meanwhile.sink;
	sink.chunk = write_meanwhile;
	ptv_consumer_destroy(consumer);
	CHECK(ptv_consumer_create(memory, &sink, &consumer) == 0);
	meanwhile.wanted = 300000;
	while (meanwhile.index < meanwhile.wanted) {
		CHECK(check_log(&producer, 0, meanwhile.index++) == 0);
		CHECK(ptv_consumer_poll(consumer, true) >= 0);
	}
	ptv_producer_deinit(&producer);
	struct ptv_totals totals = finished(0);
	CHECK(totals.stored == meanwhile.wanted && totals.lost == 0 && check_is_whole(&check->who[0]));
	CHECK(meanwhile.chunks > 50 && meanwhile.behind > 10); /* else nothing was tried */
	end();
}

static void hostile_memory_is_survived(void)
{
	begin(LISTS, PTV_LIST_SIZE_MIN, 1);
	uint64_t seed = 12345;
	struct ptv_sink sink = {check, check_name, measure, check_save};
	ptv_consumer_destroy(consumer);
	CHECK(ptv_consumer_create(memory, &sink, &consumer) == 0);
	for (int turn = 0; turn < 2000; turn++) {
		for (int i = 0; i < 8; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			uint64_t *words = (uint64_t *)vector.lists;
			words[(seed >> 33) % (LISTS * sizeof(struct ptv_list) / 8)] =
				(seed >> 20) % 4 ? seed >> 40 : ptv_owner(seed % 5, (uint32_t)(seed >> 9) & 0xffff, 7);
		}
		/* sizes the sink believes: each event as large as can be, so that it does not run away */
		for (uint64_t at = 0; at < (uint64_t)LISTS * PTV_LIST_SIZE_MIN; at += 8)
			if (turn == 0)
				*(uint64_t *)(vector.data + at) = 8;
		vector.head->high = turn % 5 ? LISTS : 0xffffffff;
		vector.head->names_claimed = (uint32_t)seed;
		CHECK(ptv_consumer_poll(consumer, turn % 2) >= 0);
	}
	CHECK(ptv_consumer_finish(consumer) >= 0);
	struct ptv_totals totals;
	ptv_consumer_totals(consumer, &totals);
	CHECK(totals.corrupt > 0);
	end();
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(events_come_back),
	CASE(a_wrong_bit_is_seen),
	CASE(what_is_too_large_is_cut_and_says_so),
	CASE(keys_without_a_place_go_into_the_event),
	CASE(a_kind_that_cannot_be_is_counted),
	CASE(handlers_log_in_the_midst_of_events),
	CASE(a_handler_between_begin_and_commit_takes_another_lane),
	CASE(events_that_a_handler_jumped_away_from_are_given_up),
	CASE(lanes_are_found_again),
	CASE(one_open_event_too_many_is_counted),
	CASE(one_event_too_many_of_one_function_costs_the_first),
	CASE(a_fork_in_the_midst_leaves_the_event_to_the_parent),
	CASE(handlers_that_fork_harm_no_event),
	CASE(without_a_consumer_it_stops_growing_and_goes_on),
	CASE(threads_lose_nothing),
	CASE(what_a_thread_writes_comes_in_its_order),
	CASE(hostile_memory_is_survived),
};

int main(int count, char **word)
{
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (count == 2 && strcmp(word[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	return 2;
}
