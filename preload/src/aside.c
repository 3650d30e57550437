/* SPDX-License-Identifier: MIT */
/* A stack for closing pages; aside.h says what is guaranteed. It is mapped with the ones for faults. */
#define _GNU_SOURCE
#include "aside.h"

#include "access.h"
#include "fork.h"
#include "options.h"
#include "touch.h"
#include "unwind.h"
#include "view.h"

#include <errno.h>

enum { NEAR = 4 * 4096 }; /* bytes below, and at most a page above */

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

void ptw_aside_back(void)
{
	const struct ptw_frame caller = PTW_CALLER;
	const uint64_t here = (uint64_t)__builtin_frame_address(0), start = ptw_page_down(here - NEAR), end = ptw_page_up(here);
	const int before = errno;
	const bool exact = ptw_options()->access == PTW_ACCESS_EXACT;
	if (!exact && !ptw_private) /* held until somebody asks for them, they mostly are open */
		return;
	ptw_touch((const void *)start, end - start, true, &caller);
	if (exact)
		ptw_exact_stack_opened(ptw_page_of(start), (uint32_t)((end - start) / PTW_PAGE));
	errno = before;
}
