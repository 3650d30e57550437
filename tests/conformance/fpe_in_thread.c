/* SPDX-License-Identifier: MIT */
/* A division by zero in a thread ends the whole program with SIGFPE.
 *
 * Ends: SIGFPE */
#include "promise.h"

static volatile int zero;

static void *divide(void *unused)
{
	zero = 100 / zero;
	return unused;
}

int main(void)
{
	start(divide, NULL);
	for (;;)
		pause();
}
