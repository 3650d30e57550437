/* SPDX-License-Identifier: MIT */
/* The functions of touch_table.h, each opening what it hands to the kernel, and those that are not of one shape. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "credentials.h"
#include "heap.h"
#include "nap.h"
#include "next.h"
#include "proc_path.h"
#include "signal_files.h"
#include "touch.h"
#include "view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <locale.h>
#include <mqueue.h>
#include <netdb.h>
#include <nl_types.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <threads.h>
#include <unistd.h>
#include <utime.h>

#undef fread_unlocked
#undef fwrite_unlocked
#undef fputs_unlocked

#define OTHERS(X)                                                                       \
	X(DIR *, opendir, (const char *))                                               \
	X(DIR *, fdopendir, (int))                                                      \
	X(char *, setlocale, (int, const char *))                                       \
	X(char *, getcwd, (char *, size_t))                                             \
	X(locale_t, newlocale, (int, const char *, locale_t))                           \
	X(locale_t, duplocale, (locale_t))                                              \
	X(struct tm *, localtime, (const time_t *))                                     \
	X(struct tm *, localtime_r, (const time_t *, struct tm *))                      \
	X(time_t, mktime, (struct tm *))                                                \
	X(void, tzset, (void))                                                          \
	X(size_t, strftime, (char *, size_t, const char *, const struct tm *))          \
	X(nl_catd, catopen, (const char *, int))                                        \
	X(char *, get_current_dir_name, (void))                                         \
	X(int, getifaddrs, (struct ifaddrs **))                                         \
	X(int, getaddrinfo, (const char *, const char *, const struct addrinfo *, struct addrinfo **)) \
	X(struct hostent *, gethostbyname, (const char *))                              \
	X(struct hostent *, gethostbyname2, (const char *, int))                        \
	X(int, setvbuf, (FILE *, char *, int, size_t))                                  \
	X(int, ioctl, (int, unsigned long, ...))                                        \
	X(int, fcntl, (int, int, ...))                                                  \
	X(int, fcntl64, (int, int, ...))                                                \
	X(ssize_t, readlink, (const char *, char *, size_t))                            \
	X(ssize_t, readlinkat, (int, const char *, char *, size_t))                     \
	X(int, open, (const char *, int, ...))                                          \
	X(int, open64, (const char *, int, ...))                                        \
	X(int, openat, (int, const char *, int, ...))                                   \
	X(int, openat64, (int, const char *, int, ...))

/* What we stand in front of. */
static struct {
#define TOUCH(result, name, parameters, ...) result (*name) parameters;
#define STREAM TOUCH
#define NAP TOUCH
#define MASKED_NAP TOUCH
#define AFTER TOUCH
#include "touch_table.h"
#include "touch_table_rare.h"
#undef TOUCH
#define X(result, name, parameters) result (*name) parameters;
	OTHERS(X)
#undef X
} next;

static const struct {
#define TOUCH(result, name, ...) char name[sizeof #name];
#include "touch_table.h"
#include "touch_table_rare.h"
#undef TOUCH
#define X(result, name, parameters) char name[sizeof #name];
	OTHERS(X)
#undef X
} text = {
#define TOUCH(result, name, ...) #name,
#include "touch_table.h"
#include "touch_table_rare.h"
#undef TOUCH
#define X(result, name, parameters) #name,
	OTHERS(X)
#undef X
};

static const struct ptw_next_name names[] = {
#define NAMED(text_of, name) { PTW_NEXT_HASH(text_of), offsetof(__typeof__(text), name) },
#define TOUCH(result, name, ...) NAMED(#name, name)
#include "touch_table.h"
#include "touch_table_rare.h"
#undef TOUCH
#define X(result, name, parameters) NAMED(#name, name)
	OTHERS(X)
#undef X
};

_Static_assert(sizeof next == sizeof names / sizeof names[0] * sizeof(void *), "a pointer for each");

/* Signal-safe afterwards. */
__attribute__((constructor)) static void resolve(void)
{
	void **found = (void **)&next;
	struct ptw_next line;

	ptw_next_init(&line);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		__atomic_store_n(&found[i], ptw_next_find(&line, (const char *)&text + names[i].at, names[i].hash),
				 __ATOMIC_RELAXED);
}

#define NEXT(name) (*(__builtin_expect(!next.name, 0) ? resolve() : (void)0, next.name))

#define FD_BYTES(count) ((count) > 0 ? ((size_t)(count) + 7) / 8 : 0)
#define IN(start, size) ptw_touch(start, size, false, &caller);
#define OUT(start, size) ptw_touch(start, size, true, &caller);
#define PATH(path) ptw_touch_string(path, &caller); path = ptw_proc_path(path, room);
#define STRING(string) ptw_touch_string(string, &caller);
#define STRINGS(list) ptw_touch_strings(list, &caller);
#define VECTOR_IN(vector, count) ptw_touch_vectors(vector, (uint64_t)(count), false, &caller);
#define VECTOR_OUT(vector, count) ptw_touch_vectors(vector, (uint64_t)(count), true, &caller);
#define MESSAGE_IN(message) ptw_touch_message(message, false, &caller);
#define MESSAGE_OUT(message) ptw_touch_message(message, true, &caller);
#define MESSAGES_IN(list, count) ptw_touch_messages(list, count, false, &caller);
#define MESSAGES_OUT(list, count) ptw_touch_messages(list, count, true, &caller);

#pragma GCC diagnostic ignored "-Wnonnull-compare"

#undef NAP
#undef MASKED_NAP
#undef AFTER
#define TOUCHED(touches)                             \
	if (ptw_tracking) {                          \
		struct ptw_frame caller = PTW_CALLER; \
		(void)caller;                        \
		touches                              \
	}
#define NAP(result, name, parameters, arguments, rest, signals, touches) \
	PTW_EXPORT result name parameters                            \
	{                                                            \
		PTW_VIEW_CALL;                                       \
		TOUCHED(touches)                                     \
		uint64_t awaited = signals;                          \
		if (awaited)                                         \
			ptw_signals_await(awaited);                  \
		result value = PTW_NAP(result, NEXT(name) arguments, rest);\
		if (awaited)                                         \
			ptw_signals_awaited();                       \
		return value;                                        \
	}
#define MASKED_NAP(result, name, parameters, arguments, rest, signals, touches) \
	PTW_EXPORT result name parameters                                  \
	{                                                                  \
		PTW_VIEW_CALL;                                             \
		bool masked = ptw_process_mode && mask;                    \
		TOUCHED(touches)                                           \
		uint64_t awaited = signals, before = masked ? ptw_mask_swap(mask) : 0; \
		if (awaited)                                               \
			ptw_signals_await(awaited);                        \
		result value = PTW_NAP(result, NEXT(name) arguments, rest); \
		if (awaited)                                               \
			ptw_signals_awaited();                             \
		if (masked)                                                \
			ptw_mask_back(before);                             \
		return value;                                              \
	}
#define TOUCH(result, name, parameters, arguments, touches) \
	PTW_EXPORT result name parameters                   \
	{                                                   \
		PTW_VIEW_CALL;                              \
		char room[PTW_PROC_PATH];                   \
		(void)room;                                 \
		TOUCHED(touches)                            \
		return NEXT(name) arguments;                \
	}
#define AFTER(result, name, parameters, arguments, then, touches) \
	PTW_EXPORT result name parameters                         \
	{                                                         \
		PTW_VIEW_CALL;                                    \
		TOUCHED(touches)                                  \
		result value = NEXT(name) arguments;              \
		if (ptw_process_mode) {                           \
			then;                                     \
		}                                                 \
		return value;                                     \
	}
#undef STREAM
#define STREAM(result, name, parameters, arguments, touches) \
	PTW_EXPORT result name parameters                    \
	{                                                    \
		char room[PTW_PROC_PATH];                    \
		(void)room;                                  \
		TOUCHED(touches)                             \
		ptw_untracked_malloc++;                      \
		result stream = NEXT(name) arguments;        \
		ptw_untracked_malloc--;                      \
		return stream;                               \
	}
#include "touch_table.h"
#include "touch_table_rare.h"
#undef STREAM
#undef TOUCH

/* --- open: with a mode, or without --- */

static bool has_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE(last)                                            \
	char room[PTW_PROC_PATH];                             \
	mode_t mode = 0;                                      \
	if (has_mode(flags)) {                                \
		va_list list;                                 \
		va_start(list, last);                         \
		mode = va_arg(list, mode_t);                  \
		va_end(list);                                 \
	}                                                     \
	if (ptw_tracking) {                                   \
		struct ptw_frame caller = PTW_CALLER;         \
		PATH(path)                                    \
	}

PTW_EXPORT int open(const char *path, int flags, ...)
{
	MODE(flags)
	return NEXT(open)(path, flags, mode);
}

PTW_EXPORT int open64(const char *path, int flags, ...)
{
	MODE(flags)
	return NEXT(open64)(path, flags, mode);
}

PTW_EXPORT int openat(int fd, const char *path, int flags, ...)
{
	MODE(flags)
	return NEXT(openat)(fd, path, flags, mode);
}

PTW_EXPORT int openat64(int fd, const char *path, int flags, ...)
{
	MODE(flags)
	return NEXT(openat64)(fd, path, flags, mode);
}

/* --- /proc/self is a link to the program's number --- */

static ssize_t read_link(int fd, const char *path, char *ret, size_t size, const struct ptw_frame *caller)
{
	char room[PTW_PROC_PATH];
	if (ptw_tracking) {
		ptw_touch_string(path, caller);
		ptw_touch(ret, size, true, caller);
		if (size && ptw_proc_self(path))
			return (ssize_t)ptw_proc_self_link(ret, size);
		path = ptw_proc_path(path, room);
	}
	return fd == AT_FDCWD ? NEXT(readlink)(path, ret, size) : NEXT(readlinkat)(fd, path, ret, size);
}

PTW_EXPORT ssize_t readlink(const char *path, char *ret, size_t size)
{
	struct ptw_frame caller = PTW_CALLER;
	return read_link(AT_FDCWD, path, ret, size, &caller);
}

PTW_EXPORT ssize_t readlinkat(int fd, const char *path, char *ret, size_t size)
{
	struct ptw_frame caller = PTW_CALLER;
	return read_link(fd, path, ret, size, &caller);
}

/* The sizes the compiler knows have been checked when they are the ones given. */
ssize_t __readlink_chk(const char *path, char *ret, size_t size, size_t has);
ssize_t __readlinkat_chk(int fd, const char *path, char *ret, size_t size, size_t has);

static size_t checked(size_t size, size_t has)
{
	if (size > has)
		abort();
	return size;
}

PTW_EXPORT ssize_t __readlink_chk(const char *path, char *ret, size_t size, size_t has)
{
	struct ptw_frame caller = PTW_CALLER;
	return read_link(AT_FDCWD, path, ret, checked(size, has), &caller);
}

PTW_EXPORT ssize_t __readlinkat_chk(int fd, const char *path, char *ret, size_t size, size_t has)
{
	struct ptw_frame caller = PTW_CALLER;
	return read_link(fd, path, ret, checked(size, has), &caller);
}

/* --- the size is in the request, or unknown: then what any of the old requests uses --- */

enum { IOCTL_UNKNOWN = 256 };

PTW_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		uint64_t size = _IOC_SIZE(request) ? _IOC_SIZE(request) : IOCTL_UNKNOWN;
		OUT(argument, size)
	}
	return NEXT(ioctl)(fd, request, argument);
}

static bool takes_pointer(int command)
{
	return command == F_GETLK || command == F_SETLK || command == F_SETLKW || command == F_OFD_GETLK ||
	       command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_GETOWN_EX || command == F_SETOWN_EX;
}

#define FCNTL(name)                                                   \
	va_list list;                                                 \
	va_start(list, command);                                      \
	void *argument = va_arg(list, void *);                        \
	va_end(list);                                                 \
	if (ptw_tracking && takes_pointer(command)) {                 \
		struct ptw_frame caller = PTW_CALLER;                 \
		OUT(argument, sizeof(struct flock))                   \
	}                                                             \
	return NEXT(name)(fd, command, argument)

PTW_EXPORT int fcntl(int fd, int command, ...) { FCNTL(fcntl); }

PTW_EXPORT int fcntl64(int fd, int command, ...) { FCNTL(fcntl64); }

/* --- buffers the library gives to the kernel later --- */

PTW_EXPORT DIR *opendir(const char *path)
{
	char room[PTW_PROC_PATH];
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		PATH(path)
	}
	ptw_untracked_malloc++;
	DIR *directory = NEXT(opendir)(path);
	ptw_untracked_malloc--;
	return directory;
}

PTW_EXPORT DIR *fdopendir(int fd)
{
	ptw_untracked_malloc++;
	DIR *directory = NEXT(fdopendir)(fd);
	ptw_untracked_malloc--;
	return directory;
}

/* New threads read their locale with all signals blocked. */
#define UNTRACKED(type, name, parameters, arguments)        \
	PTW_EXPORT type name parameters                     \
	{                                                   \
		ptw_untracked_malloc++;                     \
		type result = NEXT(name) arguments;         \
		ptw_untracked_malloc--;                     \
		return result;                              \
	}

UNTRACKED(char *, setlocale, (int category, const char *locale), (category, locale))
UNTRACKED(locale_t, newlocale, (int mask, const char *locale, locale_t base), (mask, locale, base))
UNTRACKED(locale_t, duplocale, (locale_t locale), (locale))

/* These read files and answers into memory that they allocate. */
UNTRACKED(struct tm *, localtime, (const time_t *time), (time))
UNTRACKED(struct tm *, localtime_r, (const time_t *time, struct tm *ret), (time, ret))
UNTRACKED(time_t, mktime, (struct tm *time), (time))
UNTRACKED(size_t, strftime, (char *ret, size_t size, const char *format, const struct tm *time), (ret, size, format, time))
UNTRACKED(nl_catd, catopen, (const char *name, int flag), (name, flag))
UNTRACKED(char *, get_current_dir_name, (void), ())
UNTRACKED(int, getifaddrs, (struct ifaddrs **ret), (ret))
UNTRACKED(int, getaddrinfo, (const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret), (name, service, hints, ret))
UNTRACKED(struct hostent *, gethostbyname, (const char *name), (name))
UNTRACKED(struct hostent *, gethostbyname2, (const char *name, int family), (name, family))

PTW_EXPORT void tzset(void)
{
	ptw_untracked_malloc++;
	NEXT(tzset)();
	ptw_untracked_malloc--;
}

/* Without a buffer it has the kernel write to one it allocates. */
PTW_EXPORT char *getcwd(char *buffer, size_t size)
{
	if (ptw_tracking && buffer) {
		struct ptw_frame caller = PTW_CALLER;
		OUT(buffer, size)
	}
	ptw_untracked_malloc += !buffer;
	char *result = NEXT(getcwd)(buffer, size);
	ptw_untracked_malloc -= !buffer;
	return result;
}

/* The program's own buffer might be closed when it is written out: the library takes one of its own instead. */
PTW_EXPORT int setvbuf(FILE *file, char *buffer, int mode, size_t size)
{
	return NEXT(setvbuf)(file, ptw_process_mode ? NULL : buffer, mode, size);
}

PTW_EXPORT void setbuffer(FILE *file, char *buffer, size_t size) { setvbuf(file, buffer, buffer ? _IOFBF : _IONBF, size); }

PTW_EXPORT void setbuf(FILE *file, char *buffer) { setvbuf(file, buffer, buffer ? _IOFBF : _IONBF, BUFSIZ); }
