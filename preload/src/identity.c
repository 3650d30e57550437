/* SPDX-License-Identifier: MIT */
/* Who the program is to itself: one process, whichever of its threads asks. */
#define _GNU_SOURCE
#include "heap.h"
#include "life.h"
#include "real.h"
#include "slots.h"

PTW_EXPORT pid_t getpid(void) { return ptw_process_mode ? (pid_t)ptw_shared->main_pid : GLIBC(getpid)(); }

PTW_EXPORT pid_t getppid(void)
{
	if (!ptw_process_mode)
		return GLIBC(getppid)();
	if (ptw_is_main()) /* it may have changed */
		ptw_shared->main_parent = (uint32_t)PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0);
	return (pid_t)ptw_shared->main_parent;
}

PTW_EXPORT void pthread_exit(void *result)
{
	REAL(pthread_exit)(result);
	__builtin_unreachable();
}

PTW_EXPORT void thrd_exit(int result)
{
	REAL(thrd_exit)(result);
	__builtin_unreachable();
}

/* The main thread's stack is not the one glibc knows. */
PTW_EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
	ptw_untracked_malloc++; /* it has the kernel write to what it allocates */
	int error = GLIBC(pthread_getattr_np)(thread, attributes);
	ptw_untracked_malloc--;
	if (error == 0 && ptw_process_mode && thread == ptw_shared->slot[0].handle)
		pthread_attr_setstack(attributes, (void *)ptw_shared->slot[0].stack, ptw_shared->slot[0].stack_size);
	return error;
}
