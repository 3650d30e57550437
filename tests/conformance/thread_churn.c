/* SPDX-License-Identifier: MIT */
/* A thousand threads one after the other; none leaves anything behind that makes a later one fail. */
#include "promise.h"

static long sum;

static void *add(void *argument)
{
	sum += (long)argument;
	return argument;
}

int main(void)
{
	for (long i = 0; i < 1000; i++)
		PROMISE(in_thread(add, (void *)i) == (void *)i);
	PROMISE(sum == 499500);
	return 0;
}
