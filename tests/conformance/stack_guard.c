/* SPDX-License-Identifier: MIT */
/* Beyond the end of a thread's stack is a guard: a thread that overflows it dies of SIGSEGV.
 *
 * Ends: SIGSEGV */
#include "promise.h"

static int dive(volatile char *above)
{
	volatile char local[512];
	local[0] = above[0];
	local[1] = 0; /* what lay there may be anything */
	return above[1] == 77 ? 0 : dive(local) + local[1];
}

static void *overflow(void *unused)
{
	volatile char first[2] = {0};
	dive(first);
	return unused;
}

int main(void)
{
	in_thread(overflow, NULL);
	return 0;
}
