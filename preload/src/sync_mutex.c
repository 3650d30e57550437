/* SPDX-License-Identifier: MIT */
/*
 * Mutexes and spin locks. A lock sees the version after it has the lock; an unlock makes its version before it gives
 * the lock up and logs afterwards, so nobody waits for the logging. A lock that gets EOWNERDEAD has the lock.
 */
#define _GNU_SOURCE
#include "log.h"
#include "real.h"

#include <errno.h>

#define LOCK(operation, call)                                                                     \
	struct ptw_frame caller = PTW_CALLER;                                                     \
	if (!ptw_tracing())                                                                       \
		return (call);                                                                    \
	uint64_t enter = ptw_tsc();                                                               \
	int result = (call);                                                                      \
	ptw_log_acquire(operation, &caller, enter, (const void *)lock, result, result == 0 || result == EOWNERDEAD); \
	return result

#define UNLOCK(operation, call)                                                                   \
	struct ptw_frame caller = PTW_CALLER;                                                     \
	if (!ptw_tracing())                                                                       \
		return (call);                                                                    \
	uint64_t enter = ptw_tsc(), version = ptw_release((const void *)lock);                    \
	int result = (call);                                                                      \
	ptw_log_release(operation, &caller, enter, (const void *)lock, result, version);          \
	return result

PTW_EXPORT int pthread_mutex_lock(pthread_mutex_t *lock) { LOCK(PTW_MUTEX_LOCK, REAL(pthread_mutex_lock)(lock)); }

PTW_EXPORT int pthread_mutex_trylock(pthread_mutex_t *lock)
{
	LOCK(PTW_MUTEX_TRYLOCK, REAL(pthread_mutex_trylock)(lock));
}

PTW_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until)
{
	LOCK(PTW_MUTEX_TIMEDLOCK, REAL(pthread_mutex_timedlock)(lock, until));
}

PTW_EXPORT int pthread_mutex_clocklock(pthread_mutex_t *lock, clockid_t clock, const struct timespec *until)
{
	LOCK(PTW_MUTEX_TIMEDLOCK, REAL(pthread_mutex_clocklock)(lock, clock, until));
}

PTW_EXPORT int pthread_mutex_unlock(pthread_mutex_t *lock)
{
	UNLOCK(PTW_MUTEX_UNLOCK, REAL(pthread_mutex_unlock)(lock));
}

PTW_EXPORT int pthread_spin_lock(pthread_spinlock_t *lock) { LOCK(PTW_SPIN_LOCK, REAL(pthread_spin_lock)(lock)); }

PTW_EXPORT int pthread_spin_trylock(pthread_spinlock_t *lock)
{
	LOCK(PTW_SPIN_TRYLOCK, REAL(pthread_spin_trylock)(lock));
}

PTW_EXPORT int pthread_spin_unlock(pthread_spinlock_t *lock)
{
	UNLOCK(PTW_SPIN_UNLOCK, REAL(pthread_spin_unlock)(lock));
}

/* --- C11: the same objects under other names, with results of their own --- */

static int error_of(int result)
{
	return result == thrd_success ? 0 : result == thrd_busy ? EBUSY : result == thrd_timedout ? ETIMEDOUT : EINVAL;
}

#define LOCK11(operation, call)                                                                         \
	struct ptw_frame caller = PTW_CALLER;                                                           \
	if (!ptw_tracing())                                                                             \
		return (call);                                                                          \
	uint64_t enter = ptw_tsc();                                                                     \
	int result = (call);                                                                            \
	ptw_log_acquire(operation, &caller, enter, lock, error_of(result), result == thrd_success);     \
	return result

PTW_EXPORT int mtx_lock(mtx_t *lock) { LOCK11(PTW_MUTEX_LOCK, REAL(mtx_lock)(lock)); }

PTW_EXPORT int mtx_trylock(mtx_t *lock) { LOCK11(PTW_MUTEX_TRYLOCK, REAL(mtx_trylock)(lock)); }

PTW_EXPORT int mtx_timedlock(mtx_t *restrict lock, const struct timespec *restrict until)
{
	LOCK11(PTW_MUTEX_TIMEDLOCK, REAL(mtx_timedlock)(lock, until));
}

PTW_EXPORT int mtx_unlock(mtx_t *lock)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(mtx_unlock)(lock);
	uint64_t enter = ptw_tsc(), version = ptw_release(lock);
	int result = REAL(mtx_unlock)(lock);
	ptw_log_release(PTW_MUTEX_UNLOCK, &caller, enter, lock, error_of(result), version);
	return result;
}
