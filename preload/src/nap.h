/* SPDX-License-Identifier: MIT */
/*
 * Process mode: calls that any signal ends early, whatever its action says: sleeps, poll and its kin, timed waits. The
 * requests of control.h come by signal, which the program must not notice. So a thread says that it naps; requests that
 * can wait are left in its slot then, and it looks for them when it comes back. One that cannot, or was sent just
 * before, ends the call: then the call is made again, for the time that is left.
 */
#ifndef PTW_NAP_H
#define PTW_NAP_H

#include "control.h"
#include "handlers.h"

#include <errno.h>
#include <stdbool.h>

/* Requests this thread was woken for. */
extern PTW_HIDDEN __thread uint64_t ptw_control_runs __attribute__((tls_model("initial-exec")));

struct ptw_nap {
	uint64_t handlers, requests;
	uint64_t since; /* CLOCK_MONOTONIC: what is left was reckoned then */
	struct timespec left;
};

static inline void ptw_nap_begin(struct ptw_nap *nap)
{
	nap->handlers = ptw_handler_runs;
	nap->requests = ptw_control_runs;
	if (!ptw_process_mode)
		return;
	__atomic_store_n(&ptw_slot()->napping, 1, __ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&ptw_slot()->requests, __ATOMIC_SEQ_CST) != 0, 0))
		ptw_control_serve();
}

/* `failed`: with errno. True: it was none of the program's signals; make the call again. */
static inline bool ptw_nap_end(const struct ptw_nap *nap, bool failed)
{
	if (!ptw_process_mode)
		return false;
	__atomic_store_n(&ptw_slot()->napping, 0, __ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&ptw_slot()->requests, __ATOMIC_SEQ_CST) != 0, 0)) {
		int before = errno;
		ptw_control_serve();
		errno = before;
	}
	return failed && errno == EINTR && nap->handlers == ptw_handler_runs && nap->requests != ptw_control_runs;
}

/* Of a time that began when the nap did, or when this was asked last; no time is for ever. */
static inline const struct timespec *ptw_nap_left(struct ptw_nap *nap, const struct timespec *span)
{
	if (!span)
		return NULL;
	uint64_t now = ptw_monotonic_ns(), passed = now - nap->since;
	uint64_t whole = (uint64_t)span->tv_sec > INT64_MAX / 2000000000ull
				 ? INT64_MAX
				 : (uint64_t)span->tv_sec * 1000000000ull + (uint64_t)span->tv_nsec;
	uint64_t left = whole > passed ? whole - passed : 0;
	nap->since = now;
	nap->left = (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
	return &nap->left;
}

static inline int ptw_nap_left_ms(struct ptw_nap *nap, int span)
{
	uint64_t passed = (ptw_monotonic_ns() - nap->since) / 1000000;
	if (span < 0)
		return span;
	nap->since += passed * 1000000; /* parts of a millisecond are not lost */
	return (uint64_t)span > passed ? span - (int)passed : 0;
}

/* `rest`: makes the call's time what is left of `nap`. */
#define PTW_NAP(type, call, rest)                                       \
	({                                                              \
		struct ptw_nap nap = {.since = ptw_process_mode ? ptw_monotonic_ns() : 0}; \
		type result_;                                           \
		for (;;) {                                              \
			ptw_nap_begin(&nap);                            \
			result_ = (call);                               \
			if (!ptw_nap_end(&nap, result_ == (type)-1))    \
				break;                                  \
			rest;                                           \
		}                                                       \
		result_;                                                \
	})

#endif
