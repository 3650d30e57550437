/* SPDX-License-Identifier: MIT */
/* exit called by a thread ends the whole program with that status, and flushes stdio.
 *
 * Ends: exit 7 */
#include "promise.h"

static void *leave(void *unused)
{
	printf("said before the end");
	exit(7);
	return unused;
}

static void *spin(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	start(spin, NULL);
	start(leave, NULL);
	for (;;)
		pause();
}
