/* SPDX-License-Identifier: MIT */
/* rand and random have one state for all threads; their _r forms have none. */
#include "promise.h"

static long drawn[3];

static void *draw(void *argument)
{
	*(long *)argument = random();
	return NULL;
}

int main(void)
{
	long expected[3];
	srandom(5);
	for (int i = 0; i < 3; i++)
		expected[i] = random();
	srandom(5);
	drawn[0] = random();
	in_thread(draw, &drawn[1]);
	drawn[2] = random();
	PROMISE(memcmp(drawn, expected, sizeof drawn) == 0);
	return 0;
}
