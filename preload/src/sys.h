/* SPDX-License-Identifier: MIT */
/*
 * System calls and the clock as libtthread needs them inside somebody else's program: they leave errno alone, are
 * never cancellation points and may be used in signal handlers. Errors come back as negative errno.
 */
#ifndef PTW_SYS_H
#define PTW_SYS_H

#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <x86intrin.h>

#define PTW_HIDDEN __attribute__((visibility("hidden")))
/* Each new process writes to it: kept together, since every page of such data is copied for every process. */
#define PTW_CHANGING __attribute__((section("ptw_changing")))
#define PTW_EXPORT __attribute__((visibility("default")))

static inline uint64_t ptw_tsc(void) { return __rdtsc(); }

static inline long ptw_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#define PTW_SYS(number, a, b, c, d, e, f) \
	ptw_syscall((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline int ptw_gettid(void) { return (int)PTW_SYS(SYS_gettid, 0, 0, 0, 0, 0, 0); }
static inline int ptw_getpid(void) { return (int)PTW_SYS(SYS_getpid, 0, 0, 0, 0, 0, 0); }
static inline long ptw_close(int fd) { return PTW_SYS(SYS_close, fd, 0, 0, 0, 0, 0); }

static inline uint64_t ptw_monotonic_ns(void)
{
	struct timespec now = {0, 0};
	PTW_SYS(SYS_clock_gettime, CLOCK_MONOTONIC, &now, 0, 0, 0, 0);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline void ptw_sleep_ns(long ns)
{
	struct timespec span = {0, ns};
	PTW_SYS(SYS_nanosleep, &span, 0, 0, 0, 0, 0);
}

/* Wait while *word == value, at most `ns`. Process-private. */
static inline void ptw_futex_wait(uint32_t *word, uint32_t value, long ns)
{
	struct timespec span = {ns / 1000000000, ns % 1000000000};
	PTW_SYS(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, &span, 0, 0);
}

static inline void ptw_futex_wake(uint32_t *word, int count)
{
	PTW_SYS(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, 0, 0, 0);
}

/* What is blocked where closed pages may be touched: a fault with SIGSEGV blocked would kill. */
#define PTW_ALL_BUT_FAULTS (~(1ull << (SIGSEGV - 1)))

/* Block every signal of this thread; the old mask goes to *ret. The kernel's mask is 64 bits. */
static inline void ptw_block_signals(uint64_t *ret)
{
	uint64_t all = ~0ull;
	PTW_SYS(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, ret, sizeof all, 0, 0);
}

static inline void ptw_restore_signals(const uint64_t *mask)
{
	PTW_SYS(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, mask, 0, sizeof *mask, 0, 0);
}

#endif
