/* SPDX-License-Identifier: MIT */
/* Calls that process mode cannot carry; hazards.h says what becomes of them. */
#define _GNU_SOURCE
#include "hazards.h"

#include "notice.h"
#include "pages.h"
#include "real.h"
#include "region.h"
#include "touch.h"
#include "untracked.h"

#include <sched.h>
#include <stdarg.h>

static const void *code_of(uint64_t return_address) { return (const void *)(return_address - 1); }

/* Which of the two it is the flags say; a child that has no memory of its own until it execs is none. */
static void clone_made(uint64_t flags, const void *code)
{
	if (flags & CLONE_VFORK)
		return;
	ptw_notice(PTW_NOTICE_CLONE, code,
		   flags & CLONE_VM ? "a thread made by clone: it shares the memory of its maker's process, and is not recorded"
				    : "a child made by clone: it shares memory that a child of fork has copies of");
}

/* Do all threads see the same there? */
static bool shared_memory(uint64_t address)
{
	return ptw_page_of(address) != PTW_PAGE_NONE || address - PTW_ALIAS < PTW_ALIAS_SIZE ||
	       ptw_untracked_has(address);
}

void ptw_hazard(long number, const long *argument, const void *code)
{
	switch (number) {
	case SYS_clone:
		clone_made((uint64_t)argument[0], code);
		break;
	case SYS_clone3:
		if (argument[0])
			clone_made(*(const uint64_t *)argument[0], code);
		break;
	case SYS_futex:
		if (!shared_memory((uint64_t)argument[0]))
			ptw_notice_about(PTW_NOTICE_FUTEX, code, (const void *)argument[0],
					 "a futex in memory that threads do not share as processes");
		break;
	case SYS_futex_waitv:
		ptw_notice(PTW_NOTICE_FUTEX, code, "a futex_waitv call: it may wait for what is private to one process");
		break;
	case SYS_io_uring_setup:
		ptw_notice(PTW_NOTICE_IO_URING, code,
			   "io_uring: the kernel works on memory by itself, and finds closed pages there");
		break;
	case SYS_ptrace:
		ptw_notice(PTW_NOTICE_TRACER, code, "ptrace: to a tracer each thread is another process");
		break;
	case SYS_userfaultfd:
		ptw_notice(PTW_NOTICE_FAULTS, code, "userfaultfd: each thread's process has mappings of its own");
		break;
	default:
		break;
	}
}

PTW_EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	va_list list;
	va_start(list, argument);
	void *parent_tid = va_arg(list, void *), *tls = va_arg(list, void *), *child_tid = va_arg(list, void *);
	va_end(list);
	if (ptw_process_mode)
		clone_made((uint64_t)(uint32_t)flags, code_of(caller.pc));
	return GLIBC(clone)(function, stack, flags, argument, parent_tid, tls, child_tid);
}

/* As the C library has it: what is peeked at is returned. */
PTW_EXPORT long ptrace(enum __ptrace_request request, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	va_list list;
	va_start(list, request);
	long pid = va_arg(list, long), address = va_arg(list, long), data = va_arg(list, long);
	va_end(list);
	if (ptw_process_mode)
		ptw_hazard(SYS_ptrace, NULL, code_of(caller.pc));
	if (ptw_tracking)
		ptw_touch_ptrace((int)request, (void *)data, &caller);
	return GLIBC(ptrace)(request, (pid_t)pid, (void *)address, (void *)data);
}
