/* SPDX-License-Identifier: MIT */
/* Allocation sites; allocation.h says what is guaranteed. */
#define _GNU_SOURCE
#include "allocation.h"

#include "pages.h"
#include "process.h"

#include <string.h>

/* This library's code, as the linker knows it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _etext[] __attribute__((visibility("hidden")));

static bool is_ours(uint64_t address)
{
	return address - (uint64_t)__ehdr_start < (uint64_t)(_etext - __ehdr_start);
}

__attribute__((noinline)) void ptw_allocation_log(uint64_t address, uint64_t size)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t stack[PTW_MAX_FRAMES], now = ptw_tsc();
	const struct ptw_slot *slot = ptw_slot();
	if (!ptw_tracking || !ptw_tracing() || ptw_self.state != PTW_THREAD_TRACED)
		return;
	unsigned count = 0, own = 0;
	if (caller.sp - slot->stack < slot->stack_size) /* elsewhere nothing is known of where the stack ends */
		count = ptw_unwind(&caller, ptw_self.top, stack, PTW_MAX_FRAMES);
	while (own < count && is_ours(stack[own]))
		own++;
	struct ptw_record record = {
		.operation = PTW_ALLOCATION,
		.frames = (uint16_t)(count - own),
		.tsc_enter = now,
		.tsc_exit = now,
		.object = address,
		.argument = size,
	};
	ptw_writer_put(&ptw_self.writer, &record, stack + own);
}
