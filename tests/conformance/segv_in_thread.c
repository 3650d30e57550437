/* SPDX-License-Identifier: MIT */
/* A fault in a thread ends the whole program with that signal.
 *
 * Ends: SIGSEGV */
#include "promise.h"

static void *fault(void *unused)
{
	*(volatile int *)8 = 1;
	return unused;
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	start(wait_for_ever, NULL);
	start(fault, NULL);
	for (;;)
		pause();
}
