/* SPDX-License-Identifier: MIT */
/* _exit in a thread ends the whole program at once, without handlers and without flushing.
 *
 * Ends: exit 9 */
#include "promise.h"

static void never(void) { dprintf(2, "a handler ran\n"); }

static void *leave(void *unused)
{
	_exit(9);
	return unused;
}

int main(void)
{
	atexit(never);
	setvbuf(stdout, NULL, _IOFBF, 4096);
	printf("lost");
	start(leave, NULL);
	for (;;)
		pause();
}
