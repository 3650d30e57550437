/* SPDX-License-Identifier: MIT */
/*
 * Four kinds of workers and two locks. Arguments: a number from 0 to 9, and `bad` or `good`. In the bad run, one worker
 * waits long for a lock at one of its steps, because main keeps it; the number says who and where. In the good run the
 * workers are created in another order. Every worker makes its steps in a fixed order, the same in each run.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, WORKERS = 4 };

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER, tools = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static int stuck_worker = -1, stuck_step = -1;
static volatile long total;

/* The step in which a worker is to be stuck: main takes the lock first, and keeps it for a while. */
static void meet(int worker, int step)
{
	if (worker != stuck_worker || step != stuck_step)
		return;
	pthread_barrier_wait(&held);
	pthread_barrier_wait(&held);
}

__attribute__((noinline)) void read_book(void)
{
	char text[16];
	const int file = open("/dev/zero", O_RDONLY);

	pthread_mutex_lock(&books);
	total += read(file, text, sizeof(text));
	pthread_mutex_unlock(&books);
	close(file);
}

__attribute__((noinline)) void write_book(void)
{
	const int file = open("/dev/null", O_WRONLY);

	pthread_mutex_lock(&books);
	total += write(file, "x", 1);
	pthread_mutex_unlock(&books);
	close(file);
}

__attribute__((noinline)) void lend_tool(void)
{
	pthread_mutex_lock(&tools);
	total += getuid();
	pthread_mutex_unlock(&tools);
}

__attribute__((noinline)) void mend_tool(void)
{
	pthread_mutex_lock(&tools);
	total += getgid();
	pthread_mutex_unlock(&tools);
}

__attribute__((noinline)) void count_all(void)
{
	pthread_mutex_lock(&books);
	pthread_mutex_lock(&tools);
	total += getppid() > 0;
	pthread_mutex_unlock(&tools);
	pthread_mutex_unlock(&books);
}

typedef void act(void);

static act *const steps[WORKERS][STEPS] = {
	{ read_book, lend_tool, write_book, count_all, mend_tool },
	{ lend_tool, write_book, mend_tool, read_book, count_all },
	{ mend_tool, count_all, read_book, write_book, lend_tool },
	{ write_book, mend_tool, count_all, lend_tool, read_book },
};

static void work(int worker)
{
	for (int step = 0; step < STEPS; step++) {
		meet(worker, step);
		steps[worker][step]();
	}
}

static void *clerk(void *unused) { work(0); return unused; }
static void *smith(void *unused) { work(1); return unused; }
static void *guard(void *unused) { work(2); return unused; }
static void *cook(void *unused) { work(3); return unused; }

static void *(*const workers[WORKERS])(void *) = { clerk, smith, guard, cook };

/* Where each case is stuck: a worker and its step. */
static const int cases[10][2] = {
	{ 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 3 }, { 0, 4 }, { 1, 2 }, { 2, 0 }, { 3, 1 }, { 0, 2 }, { 1, 3 },
};

static void keep_from_worker(void)
{
	act *const step = steps[stuck_worker][stuck_step];
	pthread_mutex_t *lock = step == lend_tool || step == mend_tool ? &tools : &books;

	pthread_barrier_wait(&held);
	pthread_mutex_lock(lock);
	pthread_barrier_wait(&held);
	usleep(300000);
	pthread_mutex_unlock(lock);
}

int main(int argc, char **argv)
{
	const int which = argc > 1 ? atoi(argv[1]) % 10 : 0, bad = argc > 2 && !strcmp(argv[2], "bad");
	pthread_t threads[WORKERS];

	if (bad) {
		stuck_worker = cases[which][0];
		stuck_step = cases[which][1];
	}
	pthread_barrier_init(&held, NULL, 2);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&threads[i], NULL, workers[bad ? i : (i + 1 + which % 3) % WORKERS], NULL);
	if (bad)
		keep_from_worker();
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", total);
	return 0;
}
