/* SPDX-License-Identifier: MIT */
/* A recursion that uses megabytes of stack works in main and in a thread. */
#include "promise.h"

static long dive(long depth)
{
	volatile char local[4000];
	local[0] = (char)depth;
	local[3999] = 1;
	return depth == 0 ? 0 : dive(depth - 1) + local[3999] + (local[0] != (char)depth);
}

static void *run(void *unused)
{
	PROMISE(dive(1500) == 1500);
	return unused;
}

int main(void)
{
	run(NULL);
	in_thread(run, NULL);
	run(NULL);
	return 0;
}
