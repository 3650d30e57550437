/* SPDX-License-Identifier: MIT */
/* Descriptors that give signals; signal_files.h says what is guaranteed. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "signal_files.h"

#include "handlers.h"
#include "pending.h"
#include "real.h"
#include "touch.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

/* What is remembered may be of a descriptor that was closed since. */
static bool is_one(int fd)
{
	static const char *const kinds[] = {"anon_inode:[signalfd]", "anon_inode:[eventpoll]"};
	char path[32] = "/proc/self/fd/", target[40];
	unsigned digits = 0, at = sizeof "/proc/self/fd/" - 1;
	char reversed[12];
	for (unsigned rest = (unsigned)fd; digits == 0 || rest; rest /= 10)
		reversed[digits++] = (char)('0' + rest % 10);
	while (digits)
		path[at++] = reversed[--digits];
	long length = PTW_SYS(SYS_readlink, path, target, sizeof target - 1, 0, 0, 0);
	if (length < 0)
		return false;
	target[length] = '\0';
	return strcmp(target, kinds[0]) == 0 || strcmp(target, kinds[1]) == 0;
}

uint64_t ptw_signals_of_slow(int fd)
{
	if (fd < 0 || fd >= PTW_SIGNAL_FILES || !ptw_signal_files->signals[fd])
		return 0;
	if (!is_one(fd))
		ptw_signal_files->signals[fd] = 0;
	return ptw_signal_files->signals[fd];
}

uint64_t ptw_signals_polled_slow(uint64_t fds, uint64_t count)
{
	uint64_t signals = 0;
	for (uint64_t i = 0; fds && i < count; i++)
		signals |= ptw_signals_of_slow(((const struct pollfd *)fds)[i].fd);
	return signals;
}

uint64_t ptw_signals_selected_slow(const fd_set *set, int count)
{
	uint64_t signals = 0;
	for (int fd = 0; set && fd < count && fd < FD_SETSIZE; fd++)
		if (FD_ISSET(fd, set))
			signals |= ptw_signals_of_slow(fd);
	return signals;
}

void ptw_signals_await(uint64_t signals)
{
	__atomic_store_n(&ptw_slot()->waiting, signals, __ATOMIC_SEQ_CST);
	if (ptw_pending_kept() & signals)
		ptw_pending_raise(signals);
}

void ptw_signals_awaited(void)
{
	struct ptw_slot *slot = ptw_slot();
	int error = errno;
	__atomic_store_n(&slot->waiting, 0, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&slot->handed, __ATOMIC_SEQ_CST) & slot->blocked)
		ptw_pending_return();
	errno = error;
}

/* --- making them --- */

static void remember(int fd, uint64_t signals, bool more)
{
	if (fd < 0 || fd >= PTW_SIGNAL_FILES)
		return;
	ptw_signal_files->signals[fd] = signals | (more ? ptw_signal_files->signals[fd] : 0);
	__atomic_store_n(&ptw_signal_files->any, 1, __ATOMIC_RELEASE);
}

PTW_EXPORT int signalfd(int fd, const sigset_t *set, int flags)
{
	if (!ptw_process_mode)
		return GLIBC(signalfd)(fd, set, flags);
	sigset_t copy = *set;
	uint64_t signals;
	memcpy(&signals, &copy, sizeof signals);
	int result = GLIBC(signalfd)(fd, &copy, flags);
	if (result >= 0)
		remember(result, signals, false);
	return result;
}

PTW_EXPORT int epoll_ctl(int fd, int operation, int other, struct epoll_event *event)
{
	if (!ptw_process_mode)
		return GLIBC(epoll_ctl)(fd, operation, other, event);
	struct epoll_event copy;
	if (event)
		copy = *event;
	uint64_t signals = operation == EPOLL_CTL_ADD ? ptw_signals_of(other) : 0;
	int result = GLIBC(epoll_ctl)(fd, operation, other, event ? &copy : NULL);
	if (result == 0 && signals)
		remember(fd, signals, true);
	return result;
}

/* --- reading --- */

/* As the program is to see it. False: it was one of several for the process group. */
static bool redeem(struct signalfd_siginfo *read)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_signo = (int)read->ssi_signo;
	info.si_code = read->ssi_code;
	info.si_pid = (pid_t)read->ssi_pid;
	info.si_value.sival_int = read->ssi_int;
	bool handed = info.si_code == PTW_HANDED_OVER;
	if (!ptw_signal_arrived(&info))
		return false;
	read->ssi_pid = (uint32_t)info.si_pid;
	if (!handed)
		return true;
	read->ssi_code = info.si_code;
	read->ssi_uid = info.si_uid;
	read->ssi_status = info.si_code > 0 ? info.si_status : 0;
	read->ssi_int = 0;
	read->ssi_ptr = 0;
	return true;
}

static ssize_t redeem_all(struct signalfd_siginfo *read, ssize_t size)
{
	size_t count = (size_t)size / sizeof *read, kept = 0;
	for (size_t i = 0; i < count; i++)
		if (redeem(&read[i]))
			read[kept++] = read[i];
	return (ssize_t)(kept * sizeof *read);
}

static ssize_t read_signals(int fd, void *buffer, size_t size, uint64_t signals)
{
	ssize_t result;
	do {
		ptw_signals_await(signals);
		result = GLIBC(read)(fd, buffer, size);
		if (result > 0)
			result = redeem_all(buffer, result);
		ptw_signals_awaited();
	} while (result == 0);
	return result;
}

PTW_EXPORT ssize_t read(int fd, void *buffer, size_t size)
{
	PTW_VIEW_CALL;
	if (ptw_tracking) {
		struct ptw_frame caller = PTW_CALLER;
		ptw_touch(buffer, size, true, &caller);
	}
	uint64_t signals = ptw_signals_of(fd);
	return __builtin_expect(signals != 0, 0) ? read_signals(fd, buffer, size, signals) : GLIBC(read)(fd, buffer, size);
}

PTW_EXPORT ssize_t __read_chk(int fd, void *buffer, size_t size, size_t has)
{
	PTW_VIEW_CALL;
	return size > has ? GLIBC(__read_chk)(fd, buffer, size, has) : read(fd, buffer, size);
}
