/* SPDX-License-Identifier: MIT */
/*
 * Condition variables. A wait is three records: COND_WAIT_BEGIN releases the mutex on the way in, COND_WAIT (or
 * COND_TIMEDWAIT) acquires the condition, COND_RELOCK acquires the mutex again. A wait that is cancelled logs them
 * too, with ECANCELED, because the mutex is locked again before the program's clean-up handlers run.
 */
#define _GNU_SOURCE
#include "log.h"
#include "pages.h"
#include "real.h"

#include <errno.h>

struct wait {
	struct ptw_frame caller;
	uint64_t enter;
	const void *condition;
	const void *mutex;
	enum ptw_operation operation;
};

static void wait_begin(struct wait *wait)
{
	struct ptw_event event = {PTW_COND_WAIT_BEGIN, (uint64_t)wait->mutex, 0, ptw_release(wait->mutex),
				  (uint64_t)wait->condition};
	ptw_log(&event, &wait->caller, wait->enter, ptw_tsc()); /* the version was made between the two times */
}

/* `error` as the pthread functions return it. */
static void wait_end(const struct wait *wait, int error)
{
	bool relocked = error == 0 || error == ETIMEDOUT || error == EOWNERDEAD || error == ECANCELED;
	struct ptw_event event = {wait->operation, (uint64_t)wait->condition, error,
				  error == 0 || error == EOWNERDEAD ? ptw_acquire(wait->condition) : 0,
				  (uint64_t)wait->mutex};
	uint64_t now = ptw_tsc(); /* after the version: what made it began before */
	ptw_log(&event, &wait->caller, wait->enter, now);
	if (relocked) {
		struct ptw_event again = {PTW_COND_RELOCK, (uint64_t)wait->mutex, error == EOWNERDEAD ? error : 0,
					  ptw_acquire(wait->mutex), (uint64_t)wait->condition};
		ptw_log(&again, &wait->caller, now, now);
	}
}

static void wait_cancelled(void *wait) { wait_end(wait, ECANCELED); }

#define WAIT(kind, error, call)                                                                          \
	struct wait wait = {PTW_CALLER, 0, condition, mutex, kind};                                      \
	int result;                                                                                      \
	ptw_pages_boundary(); /* before the release is logged: a thunk of its own begins there */        \
	if (!ptw_tracing())                                                                              \
		return (call);                                                                           \
	wait.enter = ptw_tsc();                                                                          \
	wait_begin(&wait);                                                                               \
	pthread_cleanup_push(wait_cancelled, &wait);                                                     \
	result = (call);                                                                                 \
	pthread_cleanup_pop(0);                                                                          \
	wait_end(&wait, (error));                                                                        \
	return result

PTW_EXPORT int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex)
{
	WAIT(PTW_COND_WAIT, result, REAL(pthread_cond_wait)(condition, mutex));
}

PTW_EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
				      const struct timespec *restrict until)
{
	WAIT(PTW_COND_TIMEDWAIT, result, REAL(pthread_cond_timedwait)(condition, mutex, until));
}

PTW_EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
				      clockid_t clock, const struct timespec *restrict until)
{
	WAIT(PTW_COND_TIMEDWAIT, result, REAL(pthread_cond_clockwait)(condition, mutex, clock, until));
}

#define SIGNAL(operation, error, call)                                                  \
	struct ptw_frame caller = PTW_CALLER;                                           \
	if (!ptw_tracing())                                                             \
		return (call);                                                          \
	uint64_t enter = ptw_tsc(), version = ptw_release(condition);                   \
	int result = (call);                                                            \
	ptw_log_release(operation, &caller, enter, condition, (error), version);        \
	return result

PTW_EXPORT int pthread_cond_signal(pthread_cond_t *condition)
{
	SIGNAL(PTW_COND_SIGNAL, result, REAL(pthread_cond_signal)(condition));
}

PTW_EXPORT int pthread_cond_broadcast(pthread_cond_t *condition)
{
	SIGNAL(PTW_COND_BROADCAST, result, REAL(pthread_cond_broadcast)(condition));
}

static int error_of(int result)
{
	return result == thrd_success ? 0 : result == thrd_timedout ? ETIMEDOUT : EINVAL;
}

PTW_EXPORT int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
	WAIT(PTW_COND_WAIT, error_of(result), REAL(cnd_wait)(condition, mutex));
}

PTW_EXPORT int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
	WAIT(PTW_COND_TIMEDWAIT, error_of(result), REAL(cnd_timedwait)(condition, mutex, until));
}

PTW_EXPORT int cnd_signal(cnd_t *condition)
{
	SIGNAL(PTW_COND_SIGNAL, error_of(result), REAL(cnd_signal)(condition));
}

PTW_EXPORT int cnd_broadcast(cnd_t *condition)
{
	SIGNAL(PTW_COND_BROADCAST, error_of(result), REAL(cnd_broadcast)(condition));
}
