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
#include "raw_call.h"

#include "alias.h"
#include "fork.h"
#include "hazards.h"
#include "kept_files.h"
#include "program.h"
#include "slots.h"
#include "touch.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

enum { ARGUMENTS = PTW_CALL_ARGUMENTS, GREATEST_SIZE = 1 << 30 };

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

static long fork_raw(void)
{
	int before = errno;
	long pid = ptw_program_fork(), result = pid < 0 ? -errno : pid;
	errno = before;
	return result;
}

/* What is for the threads of one process is for all of the machine's then: slower, and as strong. */
static long memory_barrier(const long *argument)
{
	enum { GLOBAL = 1 << 0, PRIVATE_KINDS = 1 << 3 | 1 << 5 | 1 << 7 };
	long result = PTW_SYS(SYS_membarrier, argument[0], argument[1], argument[2], 0, 0, 0);
	if (result == 0 && (argument[0] & PRIVATE_KINDS))
		result = PTW_SYS(SYS_membarrier, GLOBAL, 0, 0, 0, 0, 0);
	return result;
}

/* What is known of a call before it is made. True: `*ret` is the answer. */
static bool prepare(long number, long *argument, const struct ptw_frame *caller, long *ret)
{
	switch (number) {
	case SYS_getpid:
		*ret = ptw_shared->main_pid;
		return true;
	case SYS_getppid:
		*ret = getppid();
		return true;
	case SYS_setrlimit:
		ptw_touch((const void *)argument[1], sizeof(struct rlimit64), false, caller);
		*ret = ptw_rlimit(0, (int)argument[0], (const struct rlimit64 *)argument[1], NULL);
		return true;
	case SYS_getrlimit:
		ptw_touch((const void *)argument[1], sizeof(struct rlimit64), true, caller);
		*ret = ptw_rlimit(0, (int)argument[0], NULL, (struct rlimit64 *)argument[1]);
		return true;
	case SYS_prlimit64:
		ptw_touch((const void *)argument[2], sizeof(struct rlimit64), false, caller);
		ptw_touch((const void *)argument[3], sizeof(struct rlimit64), true, caller);
		*ret = ptw_rlimit((pid_t)argument[0], (int)argument[1], (const struct rlimit64 *)argument[2],
				 (struct rlimit64 *)argument[3]);
		return true;
	case SYS_getrusage:
		*ret = ptw_get_usage((int)argument[0], (struct rusage *)argument[1], caller);
		return true;
	case SYS_fork:
		*ret = fork_raw();
		return true;
	case SYS_clone:
		if (argument[0] == SIGCHLD && argument[1] == 0) {
			*ret = fork_raw();
			return true;
		}
		break;
	case SYS_close:
		*ret = -EBADF;
		return ptw_kept_has((int)argument[0]);
	case SYS_dup2:
	case SYS_dup3:
		*ret = -EBADF;
		return argument[0] != argument[1] && ptw_kept_has((int)argument[1]);
	case SYS_close_range:
		*ret = ptw_kept_close_range((unsigned)argument[0], (unsigned)argument[1], (unsigned)argument[2],
					    ptw_close_part);
		return true;
	case SYS_membarrier:
		*ret = memory_barrier(argument);
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
	case SYS_preadv2:
	case SYS_pwritev2:
		ptw_touch_vectors((const struct iovec *)argument[1], (uint64_t)argument[2],
				  number == SYS_readv || number == SYS_preadv || number == SYS_preadv2, caller);
		break;
	case SYS_recvmsg:
	case SYS_sendmsg:
		ptw_touch_message((const struct msghdr *)argument[1], number == SYS_recvmsg, caller);
		break;
	case SYS_recvmmsg:
	case SYS_sendmmsg:
		ptw_touch_messages((const struct mmsghdr *)argument[1], (unsigned)argument[2], number == SYS_recvmmsg, caller);
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

long ptw_raw_call(long number, long *argument, const struct ptw_frame *caller)
{
	long result;
	ptw_hazard(number, argument, (const void *)(caller->pc - 1));
	if (prepare(number, argument, caller, &result))
		return result;
	result = ptw_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
	if (result != -EFAULT || !ptw_tracking)
		return result;
	open_arguments(argument, caller);
	return ptw_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

PTW_EXPORT long syscall(long number, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	long argument[ARGUMENTS];
	va_list list;
	va_start(list, number);
	for (unsigned i = 0; i < ARGUMENTS; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	long result = ptw_process_mode ? ptw_raw_call(number, argument, &caller)
				       : ptw_syscall(number, argument[0], argument[1], argument[2], argument[3],
						     argument[4], argument[5]);
	if (result < 0 && result >= -4095) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
