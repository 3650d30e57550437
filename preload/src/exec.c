/* SPDX-License-Identifier: MIT */
/*
 * Process mode: exec from any thread. The new program takes the place of the main process, which is the one that others
 * know; so another thread has it called there, with copies of its arguments in memory that is never closed. The other
 * threads end before. What would make exec fail is looked at before that; if it fails all the same, the program ends.
 */
#define _GNU_SOURCE
#include "control.h"
#include "exec.h"
#include "handshake.h"
#include "heap.h"
#include "kept_preload.h"
#include "program.h"
#include "real.h"
#include "touch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 4096 };

struct request {
	char *path;
	char **arguments, **environment;
	uint64_t mask;
	uint32_t slot;
};

#define request ((struct request *)PTW_META_EXEC)

static char *copy_string(const char *string)
{
	size_t size = strlen(string) + 1;
	char *copy = ptw_open_take(size);
	return copy ? memcpy(copy, string, size) : NULL;
}

static char **copy_list(char *const *list)
{
	size_t count = 0;
	while (list && list[count])
		count++;
	char **copy = ptw_open_take((count + 1) * sizeof *copy);
	for (size_t i = 0; copy && i < count; i++)
		if (!(copy[i] = copy_string(list[i])))
			return NULL;
	if (copy)
		copy[count] = NULL;
	return copy;
}

static void end_others(uint32_t keep)
{
	for (uint32_t i = 0; i < ptw_shared->slots_high; i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		if (i != ptw_slot_index && i != keep && slot->state == PTW_SLOT_RUNNING && !ptw_slot_gone(slot))
			PTW_SYS(SYS_kill, slot->pid, SIGKILL, 0, 0, 0, 0);
	}
}

void ptw_exec_serve(void)
{
	end_others(UINT32_MAX);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &request->mask, 0, sizeof request->mask, 0, 0);
	struct rlimit64 before[PTW_LIMITS];
	ptw_rlimits_exec(before);
	PTW_SYS(SYS_execve, request->path, request->arguments, request->environment, 0, 0, 0);
	ptw_say("exec failed after the other threads had ended: the program ends");
	PTW_SYS(SYS_exit_group, 127, 0, 0, 0, 0, 0);
}

/* Would the kernel take it? */
static int check(const char *path)
{
	struct stat status;
	long error = PTW_SYS(SYS_newfstatat, AT_FDCWD, path, &status, 0, 0, 0);
	if (error == 0 && !S_ISREG(status.st_mode))
		return EACCES;
	if (error == 0)
		error = PTW_SYS(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS, 0, 0);
	return (int)-error;
}

static int in_main(const char *path, char *const *arguments, char *const *environment)
{
	int error = check(path);
	if (error) {
		errno = error;
		return -1;
	}
	request->path = copy_string(path);
	request->arguments = copy_list(arguments);
	request->environment = copy_list(environment);
	request->slot = ptw_slot_index;
	if (!request->path || !request->arguments || !request->environment) {
		errno = ENOMEM;
		return -1;
	}
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, 0, &request->mask, sizeof request->mask, 0, 0);
	__atomic_store_n(&ptw_shared->exec_slot, ptw_slot_index + 1, __ATOMIC_RELEASE);
	ptw_control_request(&ptw_shared->slot[ptw_shared->main_slot], PTW_REQUEST_EXEC);
	for (;;)
		ptw_sleep_ns(100000000); /* until we are ended */
}

static int replace(const char *path, char *const *arguments, char *const *environment)
{
	struct rlimit64 before[PTW_LIMITS];
	ptw_rlimits_exec(before);
	int result = GLIBC(execve)(path, arguments, environment), error = errno;
	ptw_rlimits_exec_failed(before);
	errno = error;
	return result;
}

static int exec(const char *path, char *const *arguments, char *const *environment, const struct ptw_frame *caller)
{
	if (ptw_process_mode && ptw_tracking) {
		ptw_touch_string(path, caller);
		ptw_touch_strings(arguments, caller);
		ptw_touch_strings(environment, caller);
	}
	PTW_KEEP_PRELOAD(environment);
	if (!ptw_process_mode)
		return GLIBC(execve)(path, arguments, environment);
	if (!ptw_slot_runs()) /* a child that shares memory until it execs is not the thread */
		return replace(path, arguments, environment);
	if (!ptw_is_main())
		return in_main(path, arguments, environment);
	int error = check(path);
	if (!error && ptw_shared->alive > 1) {
		__atomic_store_n(&ptw_shared->exec_slot, ptw_slot_index + 1, __ATOMIC_RELEASE);
		end_others(UINT32_MAX);
	}
	return replace(path, arguments, environment);
}

PTW_EXPORT int execve(const char *path, char *const *arguments, char *const *environment)
{
	struct ptw_frame caller = PTW_CALLER;
	return exec(path, arguments, environment, &caller);
}

PTW_EXPORT int execv(const char *path, char *const *arguments)
{
	struct ptw_frame caller = PTW_CALLER;
	return exec(path, arguments, environ, &caller);
}

/* The first of PATH's folders that has it. */
static int search(const char *file, char *const *arguments, char *const *environment, const struct ptw_frame *caller)
{
	char path[4096];
	const char *folders = getenv("PATH");
	int error = ENOENT;
	if (strchr(file, '/') || !*file)
		return exec(file, arguments, environment, caller);
	for (const char *at = folders ? folders : "/bin:/usr/bin"; at; at = strchr(at, ':'), at += at != NULL) {
		size_t length = strcspn(at, ":"), name = strlen(file);
		if (length + name + 2 > sizeof path)
			continue;
		memcpy(path, at, length);
		path[length] = '/';
		memcpy(path + length + (length != 0), file, name + 1);
		int now = check(path);
		if (now == 0)
			return exec(path, arguments, environment, caller);
		if (now == EACCES)
			error = now;
	}
	errno = error;
	return -1;
}

static int find_and_exec(const char *file, char *const *arguments, char *const *environment,
			 const struct ptw_frame *caller)
{
	if (ptw_process_mode)
		return search(file, arguments, environment, caller);
	PTW_KEEP_PRELOAD(environment);
	return GLIBC(execvpe)(file, arguments, environment);
}

PTW_EXPORT int execvpe(const char *file, char *const *arguments, char *const *environment)
{
	struct ptw_frame caller = PTW_CALLER;
	return find_and_exec(file, arguments, environment, &caller);
}

PTW_EXPORT int execvp(const char *file, char *const *arguments)
{
	struct ptw_frame caller = PTW_CALLER;
	return find_and_exec(file, arguments, environ, &caller);
}

#define COLLECT(first)                                                          \
	char *arguments[ARGUMENTS_MAX] = {(char *)first};                       \
	va_list list;                                                           \
	va_start(list, first);                                                  \
	for (unsigned i = 1; i < ARGUMENTS_MAX && arguments[i - 1]; i++)        \
		arguments[i] = i + 1 < ARGUMENTS_MAX ? va_arg(list, char *) : NULL

PTW_EXPORT int execl(const char *path, const char *first, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	COLLECT(first);
	va_end(list);
	return exec(path, arguments, environ, &caller);
}

PTW_EXPORT int execlp(const char *file, const char *first, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	COLLECT(first);
	va_end(list);
	return find_and_exec(file, arguments, environ, &caller);
}

PTW_EXPORT int execle(const char *path, const char *first, ...)
{
	struct ptw_frame caller = PTW_CALLER;
	COLLECT(first);
	char *const *environment = va_arg(list, char *const *);
	va_end(list);
	return exec(path, arguments, environment, &caller);
}
