/* SPDX-License-Identifier: MIT */
/*
 * Sleeps. A request of another process may end one at any moment (nap.h); it goes on for what the kernel says is left of
 * it. Cancellation points, and interrupted by the program's own signals, as the C library's are.
 */
#define _GNU_SOURCE
#include "nap.h"
#include "real.h"
#include "touch.h"
#include "view.h"

#include <time.h>

/* As clock_nanosleep; `left` is always filled in when the program interrupts it. Both lie on the own stack. */
static int doze(clockid_t clock, int flags, const struct timespec *span, struct timespec *left)
{
	struct timespec now = *span;
	int before = errno, error;
	struct ptw_nap nap;
	for (;;) {
		ptw_nap_begin(&nap);
		error = GLIBC(clock_nanosleep)(clock, flags, &now, left);
		errno = error;
		if (!ptw_nap_end(&nap, error != 0))
			break;
		if (!(flags & TIMER_ABSTIME))
			now = *left;
	}
	errno = before;
	return error;
}

/* The same with memory of the program. */
static int doze_for(clockid_t clock, int flags, const struct timespec *span, struct timespec *ret,
		    const struct ptw_frame *caller)
{
	ptw_touch(span, sizeof *span, false, caller);
	ptw_touch(ret, sizeof *ret, true, caller);
	struct timespec left, copy = *span;
	int error = doze(clock, flags, &copy, &left);
	if (error == EINTR && ret && !(flags & TIMER_ABSTIME))
		*ret = left;
	return error;
}

PTW_EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *span, struct timespec *ret)
{
	PTW_VIEW_CALL;
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		return GLIBC(clock_nanosleep)(clock, flags, span, ret);
	return doze_for(clock, flags, span, ret, &caller);
}

PTW_EXPORT int nanosleep(const struct timespec *span, struct timespec *ret)
{
	PTW_VIEW_CALL;
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		return GLIBC(nanosleep)(span, ret);
	int error = doze_for(CLOCK_REALTIME, 0, span, ret, &caller);
	if (error)
		errno = error;
	return error ? -1 : 0;
}

PTW_EXPORT int usleep(useconds_t microseconds)
{
	PTW_VIEW_CALL;
	struct timespec span = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000}, left;
	if (!ptw_process_mode)
		return GLIBC(usleep)(microseconds);
	int error = doze(CLOCK_REALTIME, 0, &span, &left);
	if (error)
		errno = error;
	return error ? -1 : 0;
}

PTW_EXPORT unsigned sleep(unsigned seconds)
{
	PTW_VIEW_CALL;
	struct timespec span = {seconds, 0}, left = {0, 0};
	if (!ptw_process_mode)
		return GLIBC(sleep)(seconds);
	return doze(CLOCK_REALTIME, 0, &span, &left) ? (unsigned)left.tv_sec : 0;
}

PTW_EXPORT int thrd_sleep(const struct timespec *span, struct timespec *ret)
{
	PTW_VIEW_CALL;
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		return GLIBC(thrd_sleep)(span, ret);
	int error = doze_for(CLOCK_REALTIME, 0, span, ret, &caller);
	return error == 0 ? 0 : error == EINTR ? -1 : -2;
}
