/* SPDX-License-Identifier: MIT */
/*
 * Process mode: signalfd. What the kernel gives through such a descriptor is what is pending for the process that reads.
 * So a thread that reads one, or polls it (directly, or by an epoll descriptor that has it), waits for its signals like
 * one in sigwait, and those kept for the program (pending.h) are handed to it. Costs nothing while there are none.
 *
 * Signal-safe. Descriptors from PTW_SIGNAL_FILES on are not known.
 */
#ifndef PTW_SIGNAL_FILES_H
#define PTW_SIGNAL_FILES_H

#include "layout.h"
#include "sys.h"

#include <poll.h>
#include <sys/select.h>

enum { PTW_SIGNAL_FILES = 4096 };

struct ptw_signal_files {
	uint32_t any; /* there ever was one */
	uint32_t unused;
	uint64_t signals[PTW_SIGNAL_FILES]; /* of a descriptor, as long as it is one of those */
};

#define ptw_signal_files ((struct ptw_signal_files *)PTW_META_SIGNAL_FILES)

PTW_HIDDEN uint64_t ptw_signals_of_slow(int fd);
PTW_HIDDEN uint64_t ptw_signals_polled_slow(uint64_t fds, uint64_t count); /* of struct pollfd */
PTW_HIDDEN uint64_t ptw_signals_selected_slow(const fd_set *set, int count);

#define PTW_ANY_SIGNAL_FILE \
	__builtin_expect(ptw_process_mode && __atomic_load_n(&ptw_signal_files->any, __ATOMIC_RELAXED), 0)

/* Which signals come through these descriptors; 0 none. */
#define ptw_signals_of(fd) (PTW_ANY_SIGNAL_FILE ? ptw_signals_of_slow(fd) : 0)
#define ptw_signals_polled(fds, count) (PTW_ANY_SIGNAL_FILE ? ptw_signals_polled_slow((uint64_t)(fds), count) : 0)
#define ptw_signals_selected(set, count) (PTW_ANY_SIGNAL_FILE ? ptw_signals_selected_slow(set, count) : 0)

/* Around a call that waits for them. */
PTW_HIDDEN void ptw_signals_await(uint64_t signals);
PTW_HIDDEN void ptw_signals_awaited(void);

#endif
