/* SPDX-License-Identifier: MIT */
/* SIGKILL from a thread to its own process ends every thread.
 *
 * Ends: SIGKILL */
#include "promise.h"

static void *send(void *unused)
{
	kill(getpid(), SIGKILL);
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
