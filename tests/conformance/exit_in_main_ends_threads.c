/* SPDX-License-Identifier: MIT */
/* Returning from main ends threads that still run, also busy ones.
 *
 * Ends: exit 3 */
#include "promise.h"

static volatile int running;

static void *spin(void *unused)
{
	running = 1;
	for (volatile long i = 0;; i++)
		;
	return unused;
}

int main(void)
{
	start(spin, NULL);
	while (!running)
		sleep_ms(1);
	return 3;
}
