/* SPDX-License-Identifier: MIT */
/* Computes ROUNDS (of some four bytes of packets each), says so on stdout, waits for a byte on stdin, and so on until
 * there are no more. */
#include <stdlib.h>
#include <unistd.h>

static long odd(long x) { return x * 3 + 1; }
static long even(long x) { return x / 2; }
static long none(long x) { return x + 5; }

static long (*volatile table[])(long) = { odd, even, none };
static volatile long sink;

static void work(long rounds)
{
	long x = 7;

	for (long i = 0; i < rounds; i++)
		x = table[(unsigned long)(x ^ i) % 3](x);
	sink += x;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	char byte = 'r';

	do {
		work(rounds);
		if (write(1, &byte, 1) != 1)
			return 1;
	} while (read(0, &byte, 1) == 1);
	return 0;
}
