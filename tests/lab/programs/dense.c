/* SPDX-License-Identifier: MIT */
/* ptlab: also static. ROUNDS indirect jumps with next to nothing between them: many packets of few instructions. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	static const void *const places[] = { &&first, &&second, &&third, &&fourth };
	long left = argc > 1 ? atol(argv[1]) : 1000;
	unsigned x = 12345;

first:
	x = x * 5 + 1;
	if (left-- > 0)
		goto *places[x >> 7 & 3];
	printf("%u\n", x);
	return 0;
second:
	x = x * 5 + 3;
	goto *places[x >> 9 & 3];
third:
	x = x * 9 + 1;
	goto *places[x >> 11 & 3];
fourth:
	x = x * 3 + 7;
	goto *places[x >> 13 & 3];
}
