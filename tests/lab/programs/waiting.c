/* SPDX-License-Identifier: MIT */
/* It and three threads compute for ROUNDS, each on numbers of its own, say so on stdout, and wait: the threads for ever,
 * it until its stdin ends. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 3

static volatile long sink[THREADS + 1];
static long rounds;

static long odd(long x) { return x * 3 + 1; }
static long even(long x) { return x / 2; }
static long none(long x) { return x + 5; }
static long (*volatile table[])(long) = { odd, even, none };

static void work(long number)
{
	char byte = 'r';
	long x = 7 + 12 * number;

	for (long i = 0; i < rounds; i++)
		x = table[(unsigned long)(x ^ i) % 3](x);
	sink[number] = x;
	if (write(1, &byte, 1) != 1)
		_exit(1);
}

static void *thread(void *number)
{
	work((long)number);
	pause();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	char byte;

	rounds = argc > 1 ? atol(argv[1]) : 1000;
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)(i + 1)))
			return 1;
	work(0);
	_exit(read(0, &byte, 1) != 0);
}
