/* SPDX-License-Identifier: MIT */
/*
 * Programs that know their own answer. Argument: which; the page addresses that matter are printed first.
 *
 *   pipeline   stage k reads page k, which stage k - 1 wrote, and writes page k + 1, ITEMS times
 *   handoff    thread k waits for a lock that thread k - 1 holds, and that it gives up only when it is waited for
 *   race       two threads write the same word without a lock, the same word under a lock, and words beside each other
 *   bytes IN   worker k turns page 16 k of the mapped file IN into page k of the file out; main writes page after page
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, APART = 16 * PAGE, THREADS = 4, ITEMS = 3 };

/* So far apart that no page is opened ahead with another. */
static _Alignas(PAGE) volatile unsigned char pages[THREADS + 1][APART];
static pthread_t thread[THREADS];

static void in_threads(void *(*routine)(void *))
{
	for (long k = 0; k < THREADS; k++)
		if (pthread_create(&thread[k], NULL, routine, (void *)k))
			exit(3);
	for (long k = 0; k < THREADS; k++)
		pthread_join(thread[k], NULL);
}

static void say_pages(void)
{
	for (int k = 0; k <= THREADS; k++)
		printf("page %d %p\n", k, (void *)pages[k]);
	fflush(stdout);
}

/* --- pipeline --- */

static sem_t full[THREADS + 1], empty[THREADS + 1];

static void *stage(void *argument)
{
	const long k = (long)argument;

	for (int item = 0; item < ITEMS; item++) {
		sem_wait(&full[k]);
		const unsigned char value = pages[k][0];
		sem_post(&empty[k]);
		sem_wait(&empty[k + 1]);
		pages[k + 1][0] = (unsigned char)(value + 1);
		sem_post(&full[k + 1]);
	}
	return NULL;
}

/* The first page is filled, and the last one emptied, by nobody: it may be written ITEMS times. */
static void pipeline(void)
{
	for (int k = 0; k <= THREADS; k++) {
		sem_init(&full[k], 0, k ? 0 : ITEMS);
		sem_init(&empty[k], 0, k == THREADS ? ITEMS : 1);
	}
	in_threads(stage);
}

/* --- handoff --- */

static pthread_mutex_t lock[THREADS];
static pthread_barrier_t begun;

/* The lock's own word is 2 when somebody waits for it. */
static void wait_for_waiter(long k)
{
	while (*(volatile int *)&lock[k].__data.__lock != 2)
		usleep(100);
}

static void *hand_over(void *argument)
{
	const long k = (long)argument;

	pthread_mutex_lock(&lock[k]);
	pthread_barrier_wait(&begun);
	if (k > 0) {
		pthread_mutex_lock(&lock[k - 1]);
		pthread_mutex_unlock(&lock[k - 1]);
	}
	if (k + 1 < THREADS)
		wait_for_waiter(k);
	pthread_mutex_unlock(&lock[k]);
	return NULL;
}

static void handoff(void)
{
	pthread_barrier_init(&begun, NULL, THREADS);
	for (int k = 0; k < THREADS; k++)
		pthread_mutex_init(&lock[k], NULL);
	printf("locks %p %zu\n", (void *)lock, sizeof(lock[0]));
	fflush(stdout);
	in_threads(hand_over);
}

/* --- race --- */

__attribute__((noinline)) static void write_racy(long k)
{
	pages[0][0] = (unsigned char)(k + 1);
}

__attribute__((noinline)) static void write_locked(long k)
{
	pages[1][0] = (unsigned char)(k + 1);
}

__attribute__((noinline)) static void write_beside(long k)
{
	pages[2][64 * k] = (unsigned char)(k + 1);
}

static void *race_one(void *argument)
{
	const long k = (long)argument;

	if (k > 1)
		return NULL;
	pthread_barrier_wait(&begun);
	write_racy(k);
	write_beside(k);
	pthread_mutex_lock(&lock[0]);
	write_locked(k);
	pthread_mutex_unlock(&lock[0]);
	return NULL;
}

static void race(void)
{
	pthread_barrier_init(&begun, NULL, 2);
	pthread_mutex_init(&lock[0], NULL);
	in_threads(race_one);
}

/* --- bytes --- */

static const unsigned char *input;

static void *transform(void *argument)
{
	const long k = (long)argument;

	for (int i = 0; i < PAGE; i++)
		pages[k][i] = (unsigned char)(input[k * APART + i] ^ 0x20);
	return NULL;
}

static void bytes(const char *name)
{
	const int file = open(name, O_RDONLY), out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	input = mmap(NULL, THREADS * APART, PROT_READ, MAP_PRIVATE, file, 0);
	if (file < 0 || out < 0 || input == MAP_FAILED)
		exit(3);
	close(file);
	in_threads(transform);
	for (int k = 0; k < THREADS; k++)
		if (write(out, (const void *)pages[k], PAGE) != PAGE)
			exit(3);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	say_pages();
	if (!strcmp(argv[1], "pipeline"))
		pipeline();
	else if (!strcmp(argv[1], "handoff"))
		handoff();
	else if (!strcmp(argv[1], "race"))
		race();
	else if (!strcmp(argv[1], "bytes") && argc == 3)
		bytes(argv[2]);
	else
		return 2;
	return 0;
}
