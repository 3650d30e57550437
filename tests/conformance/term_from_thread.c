/* SPDX-License-Identifier: MIT */
/* A signal that a thread sends to its own process ends every thread of it.
 *
 * Ends: SIGTERM */
#include "promise.h"

static void *send(void *unused)
{
	kill(getpid(), SIGTERM);
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	start(send, NULL);
	for (;;)
		pause();
}
