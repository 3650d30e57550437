/* SPDX-License-Identifier: MIT */
/* abort in a thread ends the whole program with SIGABRT.
 *
 * Ends: SIGABRT */
#include "promise.h"

static void *stop(void *unused)
{
	abort();
	return unused;
}

int main(void)
{
	start(stop, NULL);
	for (;;)
		pause();
}
