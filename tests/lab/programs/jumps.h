/* SPDX-License-Identifier: MIT */
/* Indirect jumps with next to nothing between them: many packets of few instructions. */
#ifndef JUMPS_H
#define JUMPS_H

/* ROUNDS of some four jumps, of three bytes of packets each. */
static unsigned jumps(long rounds)
{
	static const void *const places[] = { &&first, &&second, &&third, &&fourth };
	unsigned x = 12345;

first:
	x = x * 5 + 1;
	if (rounds-- > 0)
		goto *places[x >> 7 & 3];
	return x;
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

#endif
