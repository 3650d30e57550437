/* SPDX-License-Identifier: MIT */
/* Jumps for ROUNDS (of some twelve bytes of packets each), and reaches `odd` from time to time; says so on stdout, waits for
 * a byte on stdin, and so on until there are no more. */
#include "jumps.h"

#include <stdlib.h>
#include <unistd.h>

#define TIMES 8

static volatile unsigned sink;

static void __attribute__((noinline)) odd(unsigned x)
{
	sink += x;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	char byte = 'r';

	do {
		for (int i = 0; i < TIMES; i++)
			odd(jumps(rounds / TIMES));
		if (write(1, &byte, 1) != 1)
			return 1;
	} while (read(0, &byte, 1) == 1);
	return 0;
}
