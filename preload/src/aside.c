/* SPDX-License-Identifier: MIT */
/* A stack for closing pages; aside.h says what is guaranteed. It is mapped with the ones for faults. */
#define _GNU_SOURCE
#include "aside.h"

#include "fork.h"
#include "layout.h"

static long do_work(void *data)
{
	void (*const *work)(void) = data;
	(*work)();
	return 0;
}

void ptw_aside_with(long (*work)(void *argument), void *argument)
{
	ptw_call_on(work, argument, PTW_OWN_ASIDE + PTW_OWN_ASIDE_SIZE - 64);
}

void ptw_aside(void (*work)(void)) { ptw_aside_with(do_work, &work); }
