/* SPDX-License-Identifier: MIT */
/*
 * The event vector under stress: `vector_stress threads|kill|damage EVENTS PRODUCERS LIST_BYTES SEED`.
 *
 * `threads`: PRODUCERS threads log EVENTS between them. `kill`: PRODUCERS processes log, and every few milliseconds one
 * of them is killed and another begins, until EVENTS were taken and 40 killed. A consumer checks each event against what it must be
 * (vector_check.h); then the counts are held against what the producers say they did: each event they finished is there,
 * none twice, at most one more, and the vector counts exactly what is missing. `damage`: as kill, with one bit of one
 * list changed: it must fail. Exits 0 when all holds; prints events, kills, errors, begun, stored, lost, unfinished.
 */
#define _GNU_SOURCE
#include "vector_check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WHOS = 100000, PRODUCERS_MAX = 64, KILLS = 40 /* at least */ };

/* What a producer says: `wanted` before an event, `done` behind it. */
struct said {
	uint64_t wanted, done;
};

static struct ptv_vector vector;
static struct check *check;
static struct ptv_consumer *consumer;
static struct said *said;
static uint64_t seed, events_each;

static uint64_t random_number(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 33;
}

static void produce(uint64_t who, uint64_t count)
{
	struct ptv_producer *producer = malloc(sizeof *producer);
	if (!producer)
		abort();
	ptv_producer_init(producer, &vector);
	for (uint64_t i = 0; i < count; i++) {
		__atomic_store_n(&said[who].wanted, i + 1, __ATOMIC_RELAXED);
		if (check_log(producer, who, i) != 0)
			abort(); /* the consumer is there: nothing may be dropped */
		__atomic_store_n(&said[who].done, i + 1, __ATOMIC_RELAXED);
	}
	ptv_producer_deinit(producer);
	free(producer);
}

static void *run_thread(void *who)
{
	produce((uint64_t)(uintptr_t)who, events_each);
	return NULL;
}

static int ended;

static void *consume(void *argument)
{
	(void)argument;
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
		if (ptv_consumer_poll(consumer, true) == 0)
			usleep(100);
	return NULL;
}

static uint64_t threads(uint64_t producers)
{
	pthread_t thread[PRODUCERS_MAX], drainer;
	if (pthread_create(&drainer, NULL, consume, NULL) != 0)
		abort();
	for (uintptr_t i = 0; i < producers; i++)
		if (pthread_create(&thread[i], NULL, run_thread, (void *)i) != 0)
			abort();
	for (uint64_t i = 0; i < producers; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	pthread_join(drainer, NULL);
	return producers;
}

static pid_t spawn(uint64_t who)
{
	pid_t pid = fork();
	if (pid == 0) {
		produce(who, UINT64_MAX);
		_exit(0);
	}
	return pid;
}

/* Returns how many producers there were. */
static uint64_t kill_them(uint64_t producers, uint64_t events, bool damage)
{
	pid_t pid[PRODUCERS_MAX];
	uint64_t whos = 0, next_kill = 0;
	for (uint64_t i = 0; i < producers; i++)
		pid[i] = spawn(whos++);
	while ((check->events < events || whos < producers + KILLS || damage) && whos < WHOS && check->errors == 0) {
		if (ptv_consumer_poll(consumer, true) == 0)
			usleep(50);
		if (damage && check->events > events / 2) {
			/* what was finished, in the first list that has something and was not taken yet */
			for (uint32_t i = 0; i < vector.head->high; i++)
				vector.data[(uint64_t)i * vector.list_size + 4000] ^= 1;
		}
		if (check->events < next_kill)
			continue;
		next_kill = check->events + random_number() % 3000;
		uint64_t victim = random_number() % producers;
		int status;
		kill(pid[victim], SIGKILL);
		waitpid(pid[victim], &status, 0);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			check_error(check, "a producer ended by itself", whos, (uint64_t)status);
		ptv_consumer_reap(consumer, (uint32_t)pid[victim]);
		pid[victim] = spawn(whos++);
	}
	for (uint64_t i = 0; i < producers; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	return whos;
}

int main(int count, char **word)
{
	if (count != 6)
		return 2;
	uint64_t events = strtoull(word[2], NULL, 10), producers = strtoull(word[3], NULL, 10);
	seed = strtoull(word[5], NULL, 10);
	bool with_threads = strcmp(word[1], "threads") == 0, damage = strcmp(word[1], "damage") == 0;
	if (producers < 1 || producers > PRODUCERS_MAX)
		return 2;
	int fd = ptv_vector_init(&vector, 64, (uint32_t)atol(word[4]));
	said = mmap(NULL, WHOS * sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check = check_create(WHOS);
	struct ptv_sink sink = check_sink(check);
	if (fd < 0 || said == MAP_FAILED || ptv_consumer_create(fd, &sink, &consumer) < 0)
		return 1;
	events_each = events / producers;
	uint64_t whos = with_threads ? threads(producers) : kill_them(producers, events, damage);
	ptv_consumer_finish(consumer);
	struct ptv_totals totals;
	ptv_consumer_totals(consumer, &totals);
	uint64_t wanted = 0, done = 0, stored = 0, dropped = 0;
	for (uint64_t i = 0; i < whos; i++) {
		const struct check_who *one = &check->who[i];
		if (one->count < said[i].done || one->count > said[i].wanted || !check_is_whole(one))
			check_error(check, "counts", i, one->count);
		wanted += said[i].wanted;
		done += said[i].done;
		stored += one->count;
	}
	for (int why = 0; why < PTV_DROPS; why++)
		dropped += totals.dropped[why];
	/* an event that was wanted may not have been begun; one that was begun is stored, lost or unfinished */
	uint64_t unfinished = totals.begun - totals.stored - totals.lost;
	if (totals.stored != stored || dropped || totals.lost || totals.corrupt || totals.begun > wanted ||
	    totals.begun < done || unfinished > wanted - done)
		check_error(check, "totals", totals.begun, wanted);
	printf("events %llu producers %llu errors %llu begun %llu stored %llu lost %llu unfinished %llu wanted %llu%s%s\n",
	       (unsigned long long)check->events, (unsigned long long)whos, (unsigned long long)check->errors,
	       (unsigned long long)totals.begun, (unsigned long long)totals.stored, (unsigned long long)totals.lost,
	       (unsigned long long)unfinished, (unsigned long long)wanted, check->errors ? ": " : "",
	       check->first_error);
	return check->errors == 0 ? 0 : 1;
}
