/* SPDX-License-Identifier: MIT */
/*
 * A program to compare runs and builds of. Two kinds of threads work on numbers of their own; main sums up and writes.
 * Built with -DMOVED, lines and code before the loop are more; with -DBUG, one branch is wrong. Arguments: how many
 * rounds, and a file that is read.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef BUG
#define LIMIT 90
#else
#define LIMIT 91
#endif

static long rounds, sums[2];

#ifdef MOVED
__attribute__((noinline)) long nobody(long n)
{
	return n % 3 ? n : -n;
}
#endif

__attribute__((noinline)) long checked(long n)
{
	return n + 1;
}

__attribute__((noinline)) long step(long n)
{
	if (n % 100 < LIMIT) /* the branch */
		return 1;
	return checked(n);
}

static void *count(void *sum)
{
	long own = 0;

	for (long n = 0; n < rounds; n++)
		own += step(n);
	*(long *)sum = own;
	return NULL;
}

static void *halve(void *sum)
{
	long own = rounds;

#ifdef MOVED
	own += nobody(3) + 3;
#endif
	for (long n = 0; n < rounds; n++)
		own -= own / 2 > n;
	*(long *)sum = own;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	char text[64];
	const int file = open(argc > 2 ? argv[2] : "/dev/null", O_RDONLY);
	const long got = read(file, text, sizeof(text));

	rounds = argc > 1 ? atol(argv[1]) : 1;
	close(file);
	pthread_create(&threads[0], NULL, count, &sums[0]);
	pthread_create(&threads[1], NULL, halve, &sums[1]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%ld %ld %ld\n", got, sums[0], sums[1]);
	return 0;
}
