/* SPDX-License-Identifier: MIT */
/* on_exit handlers get the status that another thread gave to exit, and their argument.
 *
 * Ends: exit 6 */
#include "promise.h"

static int here;

static void handler(int status, void *argument) { PROMISE(status == 6 && argument == &here); }

static void *leave(void *unused)
{
	exit(6);
	return unused;
}

int main(void)
{
	on_exit(handler, &here);
	in_thread(leave, NULL);
	return 0;
}
