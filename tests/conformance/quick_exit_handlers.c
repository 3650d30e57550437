/* SPDX-License-Identifier: MIT */
/* quick_exit in a thread runs at_quick_exit handlers and no atexit handlers.
 *
 * Ends: exit 5 */
#include "promise.h"

static void never(void) { dprintf(2, "atexit handler ran\n"); }
static void always(void) { dprintf(1, "quick\n"); }

static void *leave(void *unused)
{
	quick_exit(5);
	return unused;
}

int main(void)
{
	atexit(never);
	at_quick_exit(always);
	in_thread(leave, NULL);
	return 0;
}
