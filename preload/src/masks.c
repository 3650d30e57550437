/* SPDX-License-Identifier: MIT */
/*
 * Which signals a thread blocks and waits for. In process mode the kernel's mask is the thread's, as ever; beside that
 * it is published, and signals kept for the program (pending.h) are looked for when it gets wider. That costs a store
 * and a load. SIGSEGV is never blocked. Signal-safe.
 */
#define _GNU_SOURCE
#include "dispositions.h"
#include "handlers.h"
#include "instructions.h"
#include "pending.h"
#include "real.h"
#include "touch.h"
#include "vforks.h"
#include "view.h"
#include "watch.h"

#include <errno.h>
#include <setjmp.h>
#include <string.h>

static uint64_t bits_of(const sigset_t *set)
{
	uint64_t bits;
	memcpy(&bits, set, sizeof bits);
	return bits;
}

static sigset_t set_of(uint64_t bits)
{
	sigset_t set;
	memset(&set, 0, sizeof set);
	memcpy(&set, &bits, sizeof bits);
	return set;
}

static uint64_t changed(uint64_t mask, int how, uint64_t set)
{
	return how == SIG_BLOCK ? mask | set : how == SIG_UNBLOCK ? mask & ~set : set;
}

/* Something may have been handed to us just before others saw that we block it. */
static void look_again(void)
{
	const struct ptw_slot *slot = ptw_slot();
	if (__builtin_expect(__atomic_load_n(&slot->handed, __ATOMIC_SEQ_CST) & slot->blocked & ~slot->waiting, 0))
		ptw_pending_return();
}

/* An error number. */
static int change(int how, const sigset_t *set, sigset_t *old)
{
	struct ptw_slot *slot = ptw_slot();
	bool kept = ptw_is_kept();
	sigset_t before, copy;
	if (set && how != SIG_BLOCK && how != SIG_UNBLOCK && how != SIG_SETMASK)
		return EINVAL;
	if (set) {
		uint64_t bits = bits_of(set) & (how == SIG_UNBLOCK ? ~0ull : ~ptw_unblockable());
		copy = set_of(bits);
		if (kept)
			ptw_mask_publish(changed(slot->blocked, how, bits));
	}
	int error = GLIBC(pthread_sigmask)(how, set ? &copy : NULL, &before);
	if (set && kept) {
		uint64_t now = changed(bits_of(&before), how, bits_of(&copy));
		if (now != slot->blocked) /* the C library had changed it by itself */
			ptw_mask_publish(now);
		look_again();
	}
	if (error == 0 && old)
		*old = before;
	return error;
}

/* Where threads are threads: hits of watchpoints come through. */
static const sigset_t *without_trap(int how, const sigset_t *set, sigset_t *room)
{
	if (!ptw_watching || !set || how == SIG_UNBLOCK)
		return set;
	*room = set_of(ptw_watch_mask(bits_of(set)));
	return room;
}

PTW_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;
	if (ptw_process_mode)
		return change(how, set, old);
	return GLIBC(pthread_sigmask)(how, without_trap(how, set, &copy), old);
}

PTW_EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	int error;
	sigset_t copy;
	if (!ptw_process_mode)
		return GLIBC(sigprocmask)(how, without_trap(how, set, &copy), old);
	if ((error = change(how, set, old)) != 0) {
		errno = error;
		return -1;
	}
	return 0;
}

PTW_EXPORT int sighold(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	return sigaddset(&set, signal) ? -1 : sigprocmask(SIG_BLOCK, &set, NULL);
}

PTW_EXPORT int sigrelse(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	return sigaddset(&set, signal) ? -1 : sigprocmask(SIG_UNBLOCK, &set, NULL);
}

PTW_EXPORT int sigpending(sigset_t *ret)
{
	uint64_t bits = 0;
	if (!ptw_is_kept())
		return GLIBC(sigpending)(ret);
	PTW_SYS(SYS_rt_sigpending, &bits, sizeof bits, 0, 0, 0, 0);
	*ret = set_of(bits | ptw_pending_kept());
	return 0;
}

uint64_t ptw_mask_swap(const sigset_t *set)
{
	uint64_t before = ptw_slot()->blocked;
	ptw_mask_publish(bits_of(set) & ~ptw_unblockable());
	return before;
}

void ptw_mask_back(uint64_t before)
{
	int error = errno;
	ptw_mask_publish(before);
	look_again();
	errno = error;
}

/* --- a jump that brings a mask with it --- */

static void publish_saved(const struct __jmp_buf_tag *buffer)
{
	if (ptw_process_mode)
		ptw_slot()->napping = 0;
	if (ptw_process_mode && buffer->__mask_was_saved)
		ptw_mask_publish(bits_of((const sigset_t *)&buffer->__saved_mask) & ~ptw_unblockable());
}

#define JUMP(name)                                                                      \
	PTW_EXPORT void name(struct __jmp_buf_tag buffer[1], int value)                 \
	{                                                                               \
		publish_saved(buffer);                                                  \
		GLIBC(name)(buffer, value);                                             \
		__builtin_unreachable();                                                \
	}
JUMP(siglongjmp)
JUMP(longjmp)
JUMP(_longjmp)
JUMP(__longjmp_chk)

/* --- waiting with another mask --- */

PTW_EXPORT int sigsuspend(const sigset_t *set)
{
	PTW_VIEW_CALL;
	if (!ptw_process_mode)
		return GLIBC(sigsuspend)(set);
	struct ptw_slot *slot = ptw_slot();
	uint64_t runs = ptw_handler_runs, before = slot->blocked, bits = bits_of(set) & ~ptw_unblockable();
	sigset_t copy = set_of(bits);
	do { /* a request of ours ends it, too */
		ptw_mask_publish(bits);
		GLIBC(sigsuspend)(&copy);
	} while (ptw_handler_runs == runs);
	ptw_mask_publish(before);
	look_again();
	errno = EINTR;
	return -1;
}

PTW_EXPORT int pause(void)
{
	PTW_VIEW_CALL;
	uint64_t runs = ptw_handler_runs;
	do
		GLIBC(pause)();
	while (ptw_process_mode && ptw_handler_runs == runs);
	errno = EINTR;
	return -1;
}

/* --- waiting for signals --- */

static int64_t nanoseconds(const struct timespec *span) { return span->tv_sec * 1000000000ll + span->tv_nsec; }

/* What is left until `end`; NULL for ever. */
static const struct timespec *left(const struct timespec *span, uint64_t end, struct timespec *ret)
{
	uint64_t now = ptw_monotonic_ns();
	if (!span)
		return NULL;
	*ret = (struct timespec){0, 0};
	if (now < end)
		*ret = (struct timespec){(time_t)((end - now) / 1000000000), (long)((end - now) % 1000000000)};
	return ret;
}

/* A cancellation point. The C library's own hides what kind of sender it was. */
static long wait_in_kernel(uint64_t set, siginfo_t *ret, const struct timespec *span)
{
	int type;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	long result = PTW_SYS(SYS_rt_sigtimedwait, &set, ret, span, sizeof set, 0, 0);
	pthread_setcanceltype(type, NULL);
	return result;
}

/* As sigtimedwait. Negative errno. The waiting set is published before kept signals are looked for, so that one of the two sees it. */
static int await_signal(uint64_t bits, siginfo_t *ret, const struct timespec *span)
{
	struct ptw_slot *slot = ptw_slot();
	struct timespec rest;
	uint64_t end = span ? ptw_monotonic_ns() + (uint64_t)nanoseconds(span) : 0, runs = ptw_handler_runs;
	__atomic_store_n(&slot->waiting, bits, __ATOMIC_SEQ_CST);
	long signal = ptw_pending_claim(bits, ret);
	while (signal == 0) {
		signal = wait_in_kernel(bits, ret, left(span, end, &rest));
		if ((signal > 0 && !ptw_signal_arrived(ret)) || (signal == -EINTR && ptw_handler_runs == runs))
			signal = 0;
	}
	__atomic_store_n(&slot->waiting, 0, __ATOMIC_SEQ_CST);
	look_again();
	if (signal > 0 && ret->si_code == SI_TKILL)
		ret->si_code = SI_USER; /* as the C library has it */
	return (int)signal;
}

PTW_EXPORT int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict ret, const struct timespec *restrict span)
{
	PTW_VIEW_CALL;
	struct ptw_frame caller = PTW_CALLER;
	siginfo_t info;
	if (!ptw_process_mode)
		return GLIBC(sigtimedwait)(set, ret, span);
	sigset_t wanted = *set;
	struct timespec copy = span ? *span : (struct timespec){0, 0};
	if (copy.tv_nsec < 0 || copy.tv_nsec >= 1000000000 || copy.tv_sec < 0) {
		errno = EINVAL;
		return -1;
	}
	if (ptw_tracking)
		ptw_touch(ret, sizeof *ret, true, &caller);
	int signal = await_signal(bits_of(&wanted), &info, span ? &copy : NULL);
	if (signal < 0) {
		errno = -signal;
		return -1;
	}
	if (ret)
		*ret = info;
	return signal;
}

PTW_EXPORT int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict ret)
{
	return ptw_process_mode ? sigtimedwait(set, ret, NULL) : GLIBC(sigwaitinfo)(set, ret);
}

PTW_EXPORT int sigwait(const sigset_t *restrict set, int *restrict ret)
{
	if (!ptw_process_mode)
		return GLIBC(sigwait)(set, ret);
	int signal;
	do
		signal = sigtimedwait(set, NULL, NULL);
	while (signal < 0 && errno == EINTR);
	if (signal < 0)
		return errno;
	*ret = signal;
	return 0;
}
