/* SPDX-License-Identifier: MIT */
/* backtrace in a thread finds the frames of that thread. */
#include "promise.h"

#include <execinfo.h>

__attribute__((noinline)) static int inner(void)
{
	void *frames[32];
	int count = backtrace(frames, 32);
	__asm__ volatile("" ::: "memory");
	return count;
}

static void *run(void *unused)
{
	PROMISE(inner() >= 3);
	return unused;
}

int main(void)
{
	PROMISE(inner() >= 2);
	in_thread(run, NULL);
	return 0;
}
