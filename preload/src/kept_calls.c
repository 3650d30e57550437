/* SPDX-License-Identifier: MIT */
/* The program's calls that close descriptors or put others in their place; kept_files.h says what becomes of them. */
#define _GNU_SOURCE
#include "kept_files.h"

#include "notice.h"
#include "real.h"
#include "slots.h"
#include "unwind.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

long ptw_close_part(unsigned first, unsigned last, unsigned flags)
{
	return PTW_SYS(SYS_close_range, first, last, flags, 0, 0, 0);
}

/* Before Linux 5.9. */
static long close_each(unsigned first, unsigned last, unsigned flags)
{
	struct rlimit limit = {0, 0};
	(void)flags;
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit, 0, 0);
	for (uint64_t fd = first; fd <= last && fd < limit.rlim_cur; fd++)
		ptw_close((int)fd);
	return 0;
}

static int refused(void)
{
	errno = EBADF;
	return -1;
}

static bool taken(int fd, const struct ptw_frame *caller)
{
	if (!ptw_process_mode || !ptw_kept_has(fd))
		return false;
	ptw_notice(PTW_NOTICE_LIMIT, (const void *)(caller->pc - 1),
		   "dup2 or dup3 to a number where a descriptor of ptweave's is: it fails");
	return true;
}

PTW_EXPORT int close(int fd)
{
	return ptw_process_mode && ptw_kept_has(fd) ? refused() : GLIBC(close)(fd);
}

PTW_EXPORT int dup2(int from, int to)
{
	struct ptw_frame caller = PTW_CALLER;
	return from != to && taken(to, &caller) ? refused() : GLIBC(dup2)(from, to);
}

PTW_EXPORT int dup3(int from, int to, int flags)
{
	struct ptw_frame caller = PTW_CALLER;
	return from != to && taken(to, &caller) ? refused() : GLIBC(dup3)(from, to, flags);
}

PTW_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (!ptw_process_mode)
		return GLIBC(close_range)(first, last, flags);
	long result = ptw_kept_close_range(first, last, (unsigned)flags, ptw_close_part);
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return 0;
}

PTW_EXPORT void closefrom(int from)
{
	if (!ptw_process_mode) {
		GLIBC(closefrom)(from);
		return;
	}
	unsigned first = from > 0 ? (unsigned)from : 0;
	if (ptw_kept_close_range(first, UINT32_MAX, 0, ptw_close_part) < 0)
		ptw_kept_close_range(first, UINT32_MAX, 0, close_each);
}
