/* SPDX-License-Identifier: MIT */
/* raise of a fatal signal in a thread ends the whole program.
 *
 * Ends: SIGUSR2 */
#include "promise.h"

static void *stop(void *unused)
{
	raise(SIGUSR2);
	return unused;
}

int main(void)
{
	start(stop, NULL);
	for (;;)
		pause();
}
