/* SPDX-License-Identifier: MIT */
/* ptlab: also static. Branches, indirect calls, recursion, system calls, always the same: ROUNDS rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long plain(long x) { return x + 1; }
static long odd(long x) { return x & 1 ? x * 3 + 1 : x / 2; }
static long deep(long x) { return x < 2 ? x : deep(x - 1) ^ (x << 1); }

static long choose(long x)
{
	switch (x % 7) {
	case 0: return 5;
	case 1: return x ^ 9;
	case 2: return x + 11;
	case 3: return x - 4;
	case 4: return x << 1;
	case 5: return ~x;
	default: return x * x;
	}
}

static long (*const table[])(long) = { plain, odd, deep, choose };

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000, sum = 0;
	unsigned long x = 12345;

	for (long i = 0; i < rounds; i++) {
		x = x * 6364136223846793005ul + 1442695040888963407ul;
		sum += table[x >> 33 & 3]((long)(x >> 40 & 15));
		if (i % 1024 == 0)
			getppid();
	}
	printf("%ld\n", sum);
	return 0;
}
