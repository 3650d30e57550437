/* SPDX-License-Identifier: MIT */
/* Functions that hand memory to the kernel and are not of one shape: which memory depends on their arguments. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "next.h"
#include "touch.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdarg.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sem.h>

#define LAST_ARGUMENT(before)            \
	va_list list;                    \
	va_start(list, before);          \
	void *last = va_arg(list, void *); \
	va_end(list)

/* --- calls with a command --- */

/* How many semaphores there are is not in the call. */
static uint64_t semaphores(int set)
{
	struct semid_ds data;
	return PTW_SYS(SYS_semctl, set, 0, IPC_STAT, &data, 0, 0) == 0 ? data.sem_nsems : 0;
}

PTW_EXPORT int semctl(int set, int number, int command, ...)
{
	LAST_ARGUMENT(command);
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		if (command == GETALL || command == SETALL)
			ptw_touch(last, semaphores(set) * sizeof(unsigned short), command == GETALL, &caller);
		else if (command != SETVAL)
			ptw_touch(last, sizeof(struct semid_ds), command != IPC_SET, &caller);
	}
	return PTW_NEXT(semctl)(set, number, command, last);
}

enum { LARGEST_REQUEST = 1024 }; /* bytes of what ptrace and prctl use, lists apart */

void ptw_touch_ptrace(int request, void *data, const struct ptw_frame *frame)
{
	bool vector = request == PTRACE_GETREGSET || request == PTRACE_SETREGSET;
	if (vector)
		ptw_touch_vectors(data, 1, true, frame);
	ptw_touch(data, vector ? sizeof(struct iovec) : LARGEST_REQUEST, true, frame);
}

PTW_EXPORT int prctl(int option, ...)
{
	unsigned long argument[4];
	va_list list;
	va_start(list, option);
	for (unsigned i = 0; i < 4; i++)
		argument[i] = va_arg(list, unsigned long);
	va_end(list);
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		for (unsigned i = 0; i < 4; i++)
			if (option == PR_SET_NAME)
				ptw_touch_string((const char *)argument[0], &caller);
			else if (ptw_page_of(argument[i]) != PTW_PAGE_NONE) /* few options have pointers, and numbers do not look so */
				ptw_touch((void *)argument[i], option == PR_GET_NAME ? 16 : LARGEST_REQUEST, true, &caller);
	}
	return PTW_NEXT(prctl)(option, argument[0], argument[1], argument[2], argument[3]);
}

/* --- queues --- */

PTW_EXPORT mqd_t mq_open(const char *name, int flags, ...)
{
	mode_t mode = 0;
	struct mq_attr *attributes = NULL;
	if (flags & O_CREAT) {
		va_list list;
		va_start(list, flags);
		mode = va_arg(list, mode_t);
		attributes = va_arg(list, struct mq_attr *);
		va_end(list);
	}
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch_string(name, &caller);
		ptw_touch(attributes, sizeof *attributes, false, &caller);
	}
	return PTW_NEXT(mq_open)(name, flags, mode, attributes);
}

mqd_t __mq_open_2(const char *name, int flags);

PTW_EXPORT mqd_t __mq_open_2(const char *name, int flags)
{
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch_string(name, &caller);
	}
	return PTW_NEXT(__mq_open_2)(name, flags);
}

/* Which way the bytes go depends on the pipe's end. */
PTW_EXPORT ssize_t vmsplice(int fd, const struct iovec *vector, size_t count, unsigned flags)
{
	PTW_VIEW_CALL;
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		long mode = PTW_SYS(SYS_fcntl, fd, F_GETFL, 0, 0, 0, 0);
		ptw_touch_vectors(vector, count, (mode & O_ACCMODE) == O_RDONLY, &caller);
	}
	return PTW_NEXT(vmsplice)(fd, vector, count, flags);
}
