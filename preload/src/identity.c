/* SPDX-License-Identifier: MIT */
/* Who the program is to itself: one process, whichever of its threads asks. */
#define _GNU_SOURCE
#include "control.h"
#include "heap.h"
#include "life.h"
#include "process.h"
#include "program.h"
#include "real.h"
#include "vforks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* What the kernel says in a thread's /proc/PID/comm. */
static int read_name(int index, char *ret, size_t size)
{
	char path[40];
	snprintf(path, sizeof path, "/proc/%u/comm", ptw_shared->slot[index].pid);
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return (int)-fd;
	long done = PTW_SYS(SYS_read, fd, ret, size, 0, 0, 0);
	ptw_close((int)fd);
	if (done < 0)
		return (int)-done;
	ret[done > 0 ? done - 1 : 0] = '\0'; /* the newline */
	return 0;
}

void ptw_name_serve(void)
{
	PTW_SYS(SYS_prctl, PR_SET_NAME, ptw_slot()->name, 0, 0, 0, 0);
	__atomic_store_n(&ptw_slot()->renaming, 0, __ATOMIC_RELEASE);
}

/* Only a process itself may change its name. */
static int give_name(struct ptw_slot *slot, const char *name)
{
	if (strlen(name) >= sizeof slot->name)
		return ERANGE;
	ptw_lock(&slot->name_lock);
	strcpy(slot->name, name);
	__atomic_store_n(&slot->renaming, 1, __ATOMIC_RELEASE);
	int error = ptw_control_request(slot, PTW_REQUEST_NAME);
	while (error == 0 && __atomic_load_n(&slot->renaming, __ATOMIC_ACQUIRE) && !ptw_slot_gone(slot))
		ptw_sleep_ns(20000);
	ptw_unlock(&slot->name_lock);
	return error;
}

PTW_EXPORT pid_t getpid(void) { return ptw_is_kept() ? (pid_t)ptw_shared->main_pid : GLIBC(getpid)(); }

PTW_EXPORT pid_t getppid(void)
{
	if (!ptw_process_mode)
		return GLIBC(getppid)();
	if (ptw_is_apart()) /* not the process in between */
		return ptw_vforked == 1 ? (pid_t)ptw_shared->main_pid : GLIBC(getppid)();
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
	return give_name(&ptw_shared->slot[index], name);
}

PTW_EXPORT int pthread_getname_np(pthread_t thread, char *ret, size_t size)
{
	int index = ptw_process_mode && thread != pthread_self() ? ptw_slot_of(thread) : -1;
	char own[16];
	int error = index < 0 ? GLIBC(pthread_getname_np)(thread, own, sizeof own) : read_name(index, own, sizeof own);
	if (error)
		return error;
	if (strlen(own) >= size)
		return ERANGE;
	strcpy(ret, own);
	return 0;
}

/* Without what we had it be larger. */
static void tell_asked(pthread_attr_t *attributes, pthread_t thread)
{
	void *low;
	size_t size, extra;
	if (pthread_attr_getstack(attributes, &low, &size) != 0 || size >= PTW_SMALL_STACK + PTW_EXTRA_STACK)
		return;
	extra = ptw_thread_extra(thread);
	if (extra)
		pthread_attr_setstack(attributes, (char *)low + extra, size - extra);
}

/* The main thread's stack is not the one glibc knows, and others were given theirs by us: glibc knows of no guard. It made
 * all of them joinable. */
PTW_EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
	ptw_untracked_malloc++; /* it has the kernel write to what it allocates */
	int error = GLIBC(pthread_getattr_np)(thread, attributes);
	ptw_untracked_malloc--;
	if (error == 0 && !ptw_process_mode)
		tell_asked(attributes, thread);
	int index = error == 0 && ptw_process_mode ? ptw_slot_of(thread) : -1;
	if (index < 0)
		return error;
	const struct ptw_slot *slot = &ptw_shared->slot[index];
	pthread_attr_setstack(attributes, (void *)(slot->given + slot->given_size - slot->told_size), slot->told_size);
	pthread_attr_setdetachstate(attributes, slot->detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
	if (thread != ptw_shared->slot[0].handle)
		pthread_attr_setguardsize(attributes, slot->guard);
	return error;
}
