/* SPDX-License-Identifier: MIT */
/*
 * From an operation to its record: who is calling, from where, with which version of which object.
 *
 * Every wrapper asks ptw_tracing() first; when it says no, the wrapper is a plain call through. Logging is signal-safe,
 * leaves errno alone, is no cancellation point, takes no lock and allocates nothing. A thread that glibc made on its
 * own account (for timers, say) shakes hands when it logs first.
 */
#ifndef PTW_LOG_H
#define PTW_LOG_H

#include "lists.h"
#include "objects.h"
#include "unwind.h"

#include <stdbool.h>

enum ptw_thread_state {
	PTW_THREAD_NEW = 0,
	PTW_THREAD_TRACED,
	PTW_THREAD_GREETING, /* shaking hands */
	PTW_THREAD_EXPECTED, /* welcome without an answer, and not begun yet */
	PTW_THREAD_UNTRACED, /* refused, or ended */
};

struct ptw_thread {
	uint32_t state; /* enum ptw_thread_state */
	uint32_t forking;
	uint64_t serial;      /* of this thread in its process, from 1 */
	uint64_t fork_serial; /* of the fork under way */
	uint64_t top;         /* end of the thread's stack; 0 unknown */
	void *start;          /* struct ptw_start of a thread that pthread_create made */
	struct ptw_writer writer;
};

extern PTW_HIDDEN __thread struct ptw_thread ptw_self __attribute__((tls_model("initial-exec")));

/* One page that is wiped in every fork child, known to us or not: nonzero while this process is traced. */
extern PTW_HIDDEN uint32_t *ptw_live;

static inline bool ptw_tracing(void) { return __builtin_expect(__atomic_load_n(ptw_live, __ATOMIC_RELAXED), 0); }

/* What a record says beside its operation and times. */
struct ptw_event {
	enum ptw_operation operation;
	uint64_t object;
	int64_t result;
	uint64_t version;
	uint64_t argument;
};

PTW_HIDDEN void ptw_log(const struct ptw_event *event, const struct ptw_frame *caller, uint64_t enter, uint64_t leave);

/* The version a release of `object` makes: call it before the object is released. 0: the table is full (counted). */
PTW_HIDDEN uint64_t ptw_release(const void *object);

/* The version an acquire of `object` sees: call it after the object was acquired. */
PTW_HIDDEN uint64_t ptw_acquire(const void *object);

/* Log an operation that acquires when `acquired`, and ends now. */
PTW_HIDDEN void ptw_log_acquire(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter,
				const void *object, int64_t result, bool acquired);

/* Log a release that made `version`, and ends now. */
PTW_HIDDEN void ptw_log_release(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter,
				const void *object, int64_t result, uint64_t version);

#endif
