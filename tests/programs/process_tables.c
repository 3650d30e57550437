/* SPDX-License-Identifier: MIT */
/*
 * Threads whose tables are known. `first` and `second` are made by main, `inner` by `second`; each reads a file, allocates
 * and fills three pages, writes its own page of a block that main allocated, and adds to a sum under a lock; a forked
 * child does nothing. Main reads what they wrote. Prints the addresses of the block and of the sum.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, READS = 3 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum __attribute__((aligned(PAGE)));
static char *block;

__attribute__((noinline)) static void own_page(long number) { block[number * PAGE + 40] = (char)number; }

__attribute__((noinline)) static void add(long what)
{
	pthread_mutex_lock(&mutex);
	sum += what;
	pthread_mutex_unlock(&mutex);
}

__attribute__((noinline)) static char *allocate(void) { return malloc(3 * PAGE + 100000); }

static void do_all(long number)
{
	char buffer[64], *more = allocate();
	int fd = open("/etc/passwd", O_RDONLY);
	for (int i = 0; i < READS; i++)
		add(read(fd, buffer, 10));
	close(fd);
	memset(more, (int)number, 3 * PAGE);
	__asm__ volatile("" : : "r"(more) : "memory"); /* or it would not be done */
	own_page(number);
	free(more);
}

static void *inner(void *argument)
{
	do_all(3);
	return argument;
}

static void *first(void *argument)
{
	do_all(1);
	return argument;
}

static void *second(void *argument)
{
	pthread_t thread;
	do_all(2);
	pthread_create(&thread, NULL, inner, NULL);
	pthread_join(thread, NULL);
	return argument;
}

int main(void)
{
	pthread_t thread[2];
	int status = 1;
	block = aligned_alloc(PAGE, 64 * PAGE);
	pthread_create(&thread[0], NULL, first, NULL);
	pthread_create(&thread[1], NULL, second, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	long seen = 0;
	for (int i = 1; i < 4; i++)
		seen += block[i * PAGE + 40];
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	waitpid(child, &status, 0);
	printf("%#lx %#lx\n", (unsigned long)block, (unsigned long)&sum);
	return status || seen != 6 || sum != 3 * READS * 10;
}
