/* SPDX-License-Identifier: MIT */
/*
 * Process mode: calls about memory that would see this process's pages, closed ones among them, instead of the memory
 * that all threads share.
 *
 *   mlock and its kin      lock the memory where it is always open: that is no access
 *   mlockall               would lock everything that could ever be used: done as far as programs can tell
 *   process_vm_readv, …    of the program itself: of the calling thread's process
 */
#define _GNU_SOURCE
#include "alias.h"
#include "slots.h"
#include "touch.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

static int status_of(long result)
{
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

static const void *place_of(const void *start)
{
	return ptw_process_mode ? ptw_alias_of(start) : start;
}

PTW_EXPORT int mlock(const void *start, size_t size)
{
	return status_of(PTW_SYS(SYS_mlock, place_of(start), size, 0, 0, 0, 0));
}

PTW_EXPORT int mlock2(const void *start, size_t size, unsigned flags)
{
	return status_of(PTW_SYS(SYS_mlock2, place_of(start), size, flags, 0, 0, 0));
}

PTW_EXPORT int munlock(const void *start, size_t size)
{
	return status_of(PTW_SYS(SYS_munlock, place_of(start), size, 0, 0, 0, 0));
}

PTW_EXPORT int mlockall(int flags)
{
	struct rlimit limit = {0, 0};
	if (!ptw_process_mode)
		return status_of(PTW_SYS(SYS_mlockall, flags, 0, 0, 0, 0, 0));
	if (!flags || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) || flags == MCL_ONFAULT)
		return status_of(-EINVAL);
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, &limit, 0, 0);
	return limit.rlim_cur == 0 ? status_of(-EPERM) : 0;
}

static pid_t process_of(pid_t pid)
{
	return ptw_process_mode && pid == (pid_t)ptw_shared->main_pid ? ptw_getpid() : pid;
}

/* By its name it is known that the call is the program's (merge/ptweave/merge/own_calls.py). */
static __attribute__((noinline, noclone)) ssize_t copy(long call, pid_t pid, const struct iovec *local,
						       unsigned long locals, const struct iovec *remote,
						       unsigned long remotes, unsigned long flags,
						       const struct ptw_frame *caller)
{
	bool reads = call == SYS_process_vm_readv;
	if (ptw_tracking) {
		ptw_touch_vectors(local, locals, reads, caller);
		if (process_of(pid) == ptw_getpid())
			ptw_touch_vectors(remote, remotes, !reads, caller);
		else
			ptw_touch(remote, remotes * sizeof *remote, false, caller);
	}
	long result = PTW_SYS(call, process_of(pid), local, locals, remote, remotes, flags);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : result;
}

PTW_EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
				    const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	struct ptw_frame caller = PTW_CALLER;
	return copy(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags, &caller);
}

PTW_EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
				     const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	struct ptw_frame caller = PTW_CALLER;
	return copy(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags, &caller);
}
