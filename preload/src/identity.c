/* SPDX-License-Identifier: MIT */
/* Who the program is to itself: one process, whichever of its threads asks. */
#define _GNU_SOURCE
#include "heap.h"
#include "life.h"
#include "real.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Write `name` to, or read into `ret`, a thread's /proc/PID/comm. */
static int name_file(int index, const char *name, char *ret, size_t size)
{
	char path[40];
	if (name && strlen(name) > 15)
		return ERANGE;
	snprintf(path, sizeof path, "/proc/%u/comm", ptw_shared->slot[index].pid);
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, (name ? O_WRONLY : O_RDONLY) | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return (int)-fd;
	char copy[16] = "";
	if (name)
		strcpy(copy, name);
	long done = name ? PTW_SYS(SYS_write, fd, copy, strlen(copy), 0, 0, 0) : PTW_SYS(SYS_read, fd, ret, size, 0, 0, 0);
	ptw_close((int)fd);
	if (done < 0)
		return (int)-done;
	if (!name)
		ret[done > 0 ? done - 1 : 0] = '\0'; /* the newline */
	return 0;
}

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

/* Names are given through /proc, where another thread is another process. */
PTW_EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
	int index = ptw_process_mode && thread != pthread_self() ? ptw_slot_of(thread) : -1;
	if (index < 0)
		return GLIBC(pthread_setname_np)(thread, name);
	return name_file(index, name, NULL, 0);
}

PTW_EXPORT int pthread_getname_np(pthread_t thread, char *ret, size_t size)
{
	int index = ptw_process_mode && thread != pthread_self() ? ptw_slot_of(thread) : -1;
	char own[16];
	int error = index < 0 ? GLIBC(pthread_getname_np)(thread, own, sizeof own) : name_file(index, NULL, own, sizeof own);
	if (error)
		return error;
	if (strlen(own) >= size)
		return ERANGE;
	strcpy(ret, own);
	return 0;
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
