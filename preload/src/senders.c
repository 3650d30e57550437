/* SPDX-License-Identifier: MIT */
/*
 * Signals the program sends to itself. Natively they are pending, or delivered, when the call returns: so a signal for
 * the program that its main thread blocks goes to the shared table at once, not by way of the herald. Signal-safe.
 */
#define _GNU_SOURCE
#include "pending.h"
#include "real.h"
#include "vforks.h"
#include "view.h"

#include <errno.h>
#include <string.h>

static int as_errno(long result)
{
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return 0;
}

/* Whichever of its threads is named. */
static bool is_this_program(pid_t pid)
{
	return pid > 0 && ptw_is_kept() && (pid == (pid_t)ptw_shared->main_pid || ptw_slot_of_pid(pid));
}

/* A signal for this program, with what its receiver is told. */
static long to_program(int signal, siginfo_t *info)
{
	const struct ptw_slot *main = &ptw_shared->slot[ptw_shared->main_slot];
	if (signal < 1 || signal > 64)
		return signal == 0 ? 0 : -EINVAL;
	uint64_t bit = PTW_BIT(signal);
	bool taken = !(main->blocked & bit) || main->waiting & bit;
	if (!ptw_shared->herald || signal == SIGKILL || signal == SIGSTOP || signal == SIGCONT || taken)
		return info->si_code == SI_USER
			       ? PTW_SYS(SYS_kill, ptw_shared->main_pid, signal, 0, 0, 0, 0)
			       : PTW_SYS(SYS_rt_sigqueueinfo, ptw_shared->main_pid, signal, info, 0, 0, 0);
	ptw_pending_post(signal, info);
	return 0;
}

static siginfo_t info_of(int signal, int code)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_signo = signal;
	info.si_code = code;
	info.si_pid = (pid_t)ptw_shared->main_pid;
	info.si_uid = getuid();
	return info;
}

PTW_EXPORT int kill(pid_t pid, int signal)
{
	PTW_VIEW_CALL;
	if (!is_this_program(pid))
		return GLIBC(kill)(pid, signal);
	siginfo_t info = info_of(signal, SI_USER);
	return as_errno(to_program(signal, &info));
}

PTW_EXPORT int sigqueue(pid_t pid, int signal, const union sigval value)
{
	PTW_VIEW_CALL;
	if (!ptw_is_kept())
		return GLIBC(sigqueue)(pid, signal, value);
	siginfo_t info = info_of(signal, SI_QUEUE);
	info.si_value = value;
	if (!is_this_program(pid))
		return as_errno(PTW_SYS(SYS_rt_sigqueueinfo, pid, signal, &info, 0, 0, 0));
	return as_errno(to_program(signal, &info));
}

PTW_EXPORT int pthread_sigqueue(pthread_t thread, int signal, const union sigval value)
{
	PTW_VIEW_CALL;
	if (!ptw_process_mode)
		return GLIBC(pthread_sigqueue)(thread, signal, value);
	int index = ptw_slot_of(thread);
	if (index < 0)
		return ESRCH;
	if (signal == 32 || signal == 33)
		return EINVAL;
	const struct ptw_slot *slot = &ptw_shared->slot[index];
	siginfo_t info = info_of(signal, SI_QUEUE);
	info.si_value = value;
	return (int)-PTW_SYS(SYS_rt_tgsigqueueinfo, slot->pid, slot->pid, signal, &info, 0, 0);
}

PTW_EXPORT int tgkill(pid_t group, pid_t thread, int signal)
{
	PTW_VIEW_CALL;
	const struct ptw_slot *slot = ptw_is_kept() && group == (pid_t)ptw_shared->main_pid ? ptw_slot_of_pid(thread) : NULL;
	return as_errno(PTW_SYS(SYS_tgkill, slot ? (pid_t)slot->pid : group, thread, signal, 0, 0, 0));
}
