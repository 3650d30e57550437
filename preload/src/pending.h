/* SPDX-License-Identifier: MIT */
/*
 * Process mode: signals for the program as a whole. Natively the kernel gives such a signal to any thread that can take
 * it, and keeps it as long as none can. Here each thread is a process to the kernel. So every slot publishes which
 * signals it blocks and which it waits for; what the main thread cannot take comes here (through the herald, or straight
 * from a sender inside the program), and is handed to a thread that can, or kept until one can.
 *
 * What is handed over travels as a signal to that one thread, so that it interrupts system calls as any other. The
 * kernel does not let one process send another what says "from the kernel" or "by kill": such a siginfo stays in its
 * entry here, and the receiver exchanges it (ptw_pending_redeem).
 *
 * No signal is lost or doubled: an entry has one state, changed under the lock, which is held with signals blocked. Who
 * unblocks publishes first and looks for kept signals then; who keeps one makes it visible first and looks for takers
 * then. At most PTW_PENDING_MAX signals are kept; one more is dropped, and a line says so. Signal-safe.
 */
#ifndef PTW_PENDING_H
#define PTW_PENDING_H

#include "slots.h"

#include <stdbool.h>

enum {
	PTW_PENDING_MAX = 4096,
	PTW_HANDED_OVER = -0x5054, /* si_code of a signal whose siginfo lies in an entry */
};

struct ptw_pending_entry {
	uint32_t state; /* 0 free, or kept, or handed over */
	uint32_t signal;
	uint32_t target; /* slot it was handed to */
	uint32_t unused;
	uint64_t order; /* of arrival */
	siginfo_t info;
};

struct ptw_pending {
	uint32_t lock;
	uint32_t high; /* entries [0, high) were ever used */
	uint64_t order;
	struct ptw_pending_entry entry[PTW_PENDING_MAX];
};

#define ptw_pending_table ((struct ptw_pending *)PTW_META_PENDING)
_Static_assert(sizeof(struct ptw_pending) <= 1 << 20, "fits its place");

#define PTW_BIT(signal) (1ull << ((signal) - 1))

/* The set of signals kept for whoever can take them. */
static inline uint64_t ptw_pending_kept(void) { return __atomic_load_n(&ptw_shared->signals_kept, __ATOMIC_SEQ_CST); }

/* A signal for the program. From any process, also from threads that have no slot. */
PTW_HIDDEN void ptw_pending_post(int signal, const siginfo_t *info);

/* Take the first kept signal of `set` here and now: its number, and its siginfo; 0 none. */
PTW_HIDDEN int ptw_pending_claim(uint64_t set, siginfo_t *ret);

/* Have the kernel deliver every kept signal of `set` to the calling thread. */
PTW_HIDDEN void ptw_pending_raise(uint64_t set);

/* What was handed to this thread, and it can no longer take, goes to another. */
PTW_HIDDEN void ptw_pending_return(void);

/* `info` came with a signal: make it what the sender meant. */
PTW_HIDDEN void ptw_pending_redeem(siginfo_t *info);

/* The signal is ignored from now on. */
PTW_HIDDEN void ptw_pending_flush(int signal);

/* In a fork child: nothing is pending. */
PTW_HIDDEN void ptw_pending_forget(void);

#endif
