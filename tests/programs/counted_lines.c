/* SPDX-License-Identifier: MIT */
/* Lines that run known numbers of times: straight ones, several to a block; ones of several blocks; ones that never do. */
#include <stdio.h>
#include <stdlib.h>

struct point {
	long x;
	long y;
	long weight;
};

static long seen;

static long scale(struct point *point, long factor)
{
	long x = point->x;
	long y = point->y;

	x *= factor;
	y *= factor;
	point->x = x + 1;
	point->y = y - 1;
	point->weight++;
	return x ^ y;
}

static long choose(long a, long b)
{
	if (a > b && a % 3)
		return a - b;
	if (a < 0) {
		seen = -1;
		return 0;
	}
	seen++;
	return b > 7 ? b :
	       a;
}

int main(int argc, char **argv)
{
	const long rounds = argc > 1 ? atol(argv[1]) : 50;
	struct point point = { 1, 2, 0 };
	long sum = 0;

	for (long i = 0; i < rounds; i++) {
		const long first = scale(&point, i % 5);
		const long second = scale(&point, 2) + scale(&point, 1);

		sum += first;
		sum -= second;
		if (i % 4 == 3)
			continue;
		sum += choose(i, 30 - i) + choose(i % 6, i % 11);
	}
	while (sum > 1000000)
		sum /= 2;
	printf("%ld %ld %ld\n", sum, seen, point.weight);
	return 0;
}
