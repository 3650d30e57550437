/* SPDX-License-Identifier: MIT */
/* Known accesses: a thread reads one page, writes another and has the kernel write a third; then main reads the second.
 * Prints the pages. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *memory;
static int ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int read_one(void) { return *(volatile char *)(memory + PAGE + 7); }
__attribute__((noinline)) static void write_one(void) { *(volatile char *)(memory + 3 * PAGE + 9) = 5; }

static void *work(void *unused)
{
	read_one();
	pthread_mutex_lock(&mutex);
	write_one();
	pthread_mutex_unlock(&mutex);
	read(ends[0], memory + 5 * PAGE + 100, 4);
	write_one();
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *result;
	memory = aligned_alloc(PAGE, 64 * PAGE);
	if (!memory || pipe(ends) != 0 || write(ends[1], "abcd", 4) != 4)
		return 1;
	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, &result);
	int seen = *(volatile char *)(memory + 3 * PAGE + 9);
	printf("%#lx %#lx %#lx\n", (unsigned long)memory, (unsigned long)read_one, (unsigned long)write_one);
	return seen != 5 || result != NULL;
}
