/* SPDX-License-Identifier: MIT */
/*
 * Reader-writer locks, barriers and semaphores.
 *
 * A barrier wait is two records: BARRIER_ARRIVE releases on the way in, BARRIER_WAIT acquires on the way out. Its
 * arrivals are its versions; pthread_barrier_init rounds them up to a multiple of the count, so that (version − 1) /
 * count is the generation.
 */
#define _GNU_SOURCE
#include "event.h"
#include "log.h"
#include "pages.h"
#include "process.h"
#include "real.h"

#include <errno.h>

#define ACQUIRE(operation, object, call)                                                    \
	struct ptw_frame caller = PTW_CALLER;                                               \
	if (!ptw_tracing())                                                                 \
		return (call);                                                              \
	uint64_t enter = ptw_tsc();                                                         \
	int result = (call);                                                                \
	ptw_log_acquire(operation, &caller, enter, object, result, result == 0);            \
	return result

PTW_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	ACQUIRE(PTW_RDLOCK, lock, REAL(pthread_rwlock_rdlock)(lock));
}

PTW_EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock)
{
	ACQUIRE(PTW_TRYRDLOCK, lock, REAL(pthread_rwlock_tryrdlock)(lock));
}

PTW_EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	ACQUIRE(PTW_TIMEDRDLOCK, lock, REAL(pthread_rwlock_timedrdlock)(lock, until));
}

PTW_EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *restrict lock, clockid_t clock,
					  const struct timespec *restrict until)
{
	ACQUIRE(PTW_TIMEDRDLOCK, lock, REAL(pthread_rwlock_clockrdlock)(lock, clock, until));
}

PTW_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	ACQUIRE(PTW_WRLOCK, lock, REAL(pthread_rwlock_wrlock)(lock));
}

PTW_EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
	ACQUIRE(PTW_TRYWRLOCK, lock, REAL(pthread_rwlock_trywrlock)(lock));
}

PTW_EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	ACQUIRE(PTW_TIMEDWRLOCK, lock, REAL(pthread_rwlock_timedwrlock)(lock, until));
}

PTW_EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *restrict lock, clockid_t clock,
					  const struct timespec *restrict until)
{
	ACQUIRE(PTW_TIMEDWRLOCK, lock, REAL(pthread_rwlock_clockwrlock)(lock, clock, until));
}

PTW_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(pthread_rwlock_unlock)(lock);
	uint64_t enter = ptw_tsc(), version = ptw_release(lock);
	int result = REAL(pthread_rwlock_unlock)(lock);
	ptw_log_release(PTW_RWUNLOCK, &caller, enter, lock, result, version);
	return result;
}

/* --- semaphores: the result logged is errno --- */

static int semaphore_error(int result) { return result == 0 ? 0 : errno; }

#define SEMAPHORE(operation, call)                                                                             \
	struct ptw_frame caller = PTW_CALLER;                                                                  \
	if (!ptw_tracing())                                                                                    \
		return (call);                                                                                 \
	uint64_t enter = ptw_tsc();                                                                            \
	int result = (call);                                                                                   \
	ptw_log_acquire(operation, &caller, enter, semaphore, semaphore_error(result), result == 0);           \
	return result

PTW_EXPORT int sem_wait(sem_t *semaphore) { SEMAPHORE(PTW_SEM_WAIT, REAL(sem_wait)(semaphore)); }

PTW_EXPORT int sem_trywait(sem_t *semaphore) { SEMAPHORE(PTW_SEM_TRYWAIT, REAL(sem_trywait)(semaphore)); }

PTW_EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
	SEMAPHORE(PTW_SEM_TIMEDWAIT, REAL(sem_timedwait)(semaphore, until));
}

PTW_EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until)
{
	SEMAPHORE(PTW_SEM_TIMEDWAIT, REAL(sem_clockwait)(semaphore, clock, until));
}

PTW_EXPORT int sem_post(sem_t *semaphore)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(sem_post)(semaphore);
	uint64_t enter = ptw_tsc(), version = ptw_release(semaphore);
	int result = REAL(sem_post)(semaphore);
	ptw_log_release(PTW_SEM_POST, &caller, enter, semaphore, semaphore_error(result), version);
	return result;
}

/* --- barriers --- */

PTW_EXPORT int pthread_barrier_init(pthread_barrier_t *restrict barrier, const pthread_barrierattr_t *restrict attributes,
				    unsigned count)
{
	int result = REAL(pthread_barrier_init)(barrier, attributes, count);
	struct ptw_object *object;
	if (result == 0 && ptw_tracing() && (object = ptw_object_get(ptw_process.objects, (uint64_t)barrier))) {
		uint64_t version = ptw_object_acquire(object);
		__atomic_store_n(&object->version, (version + count - 1) / count * count, __ATOMIC_RELAXED);
		__atomic_store_n(&object->count, count, __ATOMIC_RELEASE);
	}
	return result;
}

PTW_EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	struct ptw_frame caller = PTW_CALLER;
	ptw_pages_boundary(); /* before the arrival is logged: a thunk of its own begins there */
	if (!ptw_tracing())
		return REAL(pthread_barrier_wait)(barrier);
	ptw_pages_boundary(); /* the arrival begins a thunk in which nothing is accessed */
	uint64_t enter = ptw_tsc();
	struct ptw_object *object = ptw_object_get(ptw_process.objects, (uint64_t)barrier);
	uint64_t count = object ? __atomic_load_n(&object->count, __ATOMIC_ACQUIRE) : 0;
	struct ptw_event arrive = {PTW_BARRIER_ARRIVE, (uint64_t)barrier, 0, ptw_release(barrier), count};
	ptw_log(&arrive, &caller, enter, ptw_tsc()); /* the version was made between the two times */
	int result = REAL(pthread_barrier_wait)(barrier);
	bool serial = result == PTHREAD_BARRIER_SERIAL_THREAD;
	struct ptw_event wait = {PTW_BARRIER_WAIT, (uint64_t)barrier, result,
				 result == 0 || serial ? ptw_acquire(barrier) : 0,
				 count | (serial ? PTW_BARRIER_SERIAL : 0)};
	ptw_log(&wait, &caller, enter, ptw_tsc());
	return result;
}
