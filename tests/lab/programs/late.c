/* SPDX-License-Identifier: MIT */
/* ptlab: also static. Computes for ROUNDS, reaches a function, rests for so many milliseconds (in three digits: the same
 * is executed then, however many they are), computes as long again, and ends, or crashes while another thread waits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile long sink;
static int *volatile nowhere;

static long odd(long x) { return x * 3 + 1; }
static long even(long x) { return x / 2; }
static long (*volatile table[])(long) = { odd, even };

static void work(long rounds)
{
	long x = 7;

	for (long i = 0; i < rounds; i++)
		x = table[(unsigned long)(x ^ i) % 2](x);
	sink += x;
}

void reached(long x)
{
	sink += x;
}

static void *wait(void *unused)
{
	pause();
	return unused;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	int rest = argc > 2 ? atoi(argv[2]) : 0;
	int crashes = argc > 3 && !strcmp(argv[3], "crash");
	pthread_t thread;

	if (crashes && pthread_create(&thread, NULL, wait, NULL))
		return 1;
	work(rounds);
	reached(5);
	usleep((useconds_t)rest * 1000);
	work(rounds);
	if (crashes)
		*nowhere = 1;
	puts("done");
	return 0;
}
