/* SPDX-License-Identifier: MIT */
/*
 * syscall(): any call, with any memory. In process mode
 *
 *  - what the common calls read or write is opened before, as their wrappers do;
 *  - futex calls wait on the shared memory itself, never on what looks private to one process;
 *  - who the program is does not depend on the thread that asks;
 *  - anything else that fails with EFAULT is tried once more with the memory opened that its arguments point to. How
 *    much that is is taken from the next argument, where it can be a size, and is a page otherwise.
 */
#define _GNU_SOURCE
#include "alias.h"
#include "slots.h"
#include "touch.h"

#include <errno.h>
#include <stdarg.h>

enum { ARGUMENTS = 6, GREATEST_SIZE = 1 << 30 };

static void futex(long *argument)
{
	argument[0] = (long)ptw_alias_of((const void *)argument[0]);
	argument[4] = (long)ptw_alias_of((const void *)argument[4]);
	argument[1] &= ~(long)FUTEX_PRIVATE_FLAG;
}

static void signal_thread(long *argument)
{
	if (argument[0] != (long)ptw_shared->main_pid)
		return;
	for (uint32_t i = 0; i < ptw_shared->slots_high; i++)
		if (ptw_shared->slot[i].pid == (uint32_t)argument[1] && ptw_shared->slot[i].state != PTW_SLOT_FREE)
			argument[0] = argument[1];
}

/* What is known of a call before it is made. True: `*ret` is the answer. */
static bool prepare(long number, long *argument, const struct ptw_frame *caller, long *ret)
{
	switch (number) {
	case SYS_getpid:
		*ret = ptw_shared->main_pid;
		return true;
	case SYS_futex:
		futex(argument);
		break;
	case SYS_tgkill:
		signal_thread(argument);
		break;
	case SYS_read:
	case SYS_pread64:
	case SYS_recvfrom:
		ptw_touch((const void *)argument[1], (uint64_t)argument[2], true, caller);
		break;
	case SYS_write:
	case SYS_pwrite64:
	case SYS_sendto:
		ptw_touch((const void *)argument[1], (uint64_t)argument[2], false, caller);
		break;
	case SYS_readv:
	case SYS_writev:
	case SYS_preadv:
	case SYS_pwritev:
		ptw_touch_vectors((const struct iovec *)argument[1], (uint64_t)argument[2],
				  number == SYS_readv || number == SYS_preadv, caller);
		break;
	case SYS_getdents64:
		ptw_touch((const void *)argument[1], (uint64_t)argument[2], true, caller);
		break;
	default:
		break;
	}
	return false;
}

static void open_arguments(const long *argument, const struct ptw_frame *caller)
{
	for (unsigned i = 0; i < ARGUMENTS; i++) {
		uint64_t size = i + 1 < ARGUMENTS ? (uint64_t)argument[i + 1] : 0;
		if (size == 0 || size > GREATEST_SIZE)
			size = PTW_PAGE;
		if (ptw_page_of((uint64_t)argument[i]) != PTW_PAGE_NONE)
			ptw_touch((const void *)argument[i], size, true, caller);
	}
}

PTW_EXPORT long syscall(long number, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	long argument[ARGUMENTS], result;
	va_list list;
	va_start(list, number);
	for (unsigned i = 0; i < ARGUMENTS; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	if (!ptw_process_mode || !prepare(number, argument, &caller, &result)) {
		result = ptw_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
		if (result == -EFAULT && ptw_tracking) {
			open_arguments(argument, &caller);
			result = ptw_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
					     argument[5]);
		}
	}
	if (result < 0 && result >= -4095) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
