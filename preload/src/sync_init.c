/* SPDX-License-Identifier: MIT */
/* Making and unmaking synchronisation objects: nothing is logged, but in process mode the objects must be made for
 * processes. */
#define _GNU_SOURCE
#include "real.h"

PTW_EXPORT int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
	return REAL(pthread_mutex_init)(mutex, attributes);
}

PTW_EXPORT int pthread_mutex_destroy(pthread_mutex_t *mutex) { return REAL(pthread_mutex_destroy)(mutex); }

PTW_EXPORT int pthread_mutex_consistent(pthread_mutex_t *mutex) { return REAL(pthread_mutex_consistent)(mutex); }

PTW_EXPORT int pthread_spin_init(pthread_spinlock_t *lock, int process_shared)
{
	return REAL(pthread_spin_init)(lock, process_shared);
}

PTW_EXPORT int pthread_spin_destroy(pthread_spinlock_t *lock) { return REAL(pthread_spin_destroy)(lock); }

PTW_EXPORT int pthread_cond_init(pthread_cond_t *restrict condition, const pthread_condattr_t *restrict attributes)
{
	return REAL(pthread_cond_init)(condition, attributes);
}

PTW_EXPORT int pthread_cond_destroy(pthread_cond_t *condition) { return REAL(pthread_cond_destroy)(condition); }

PTW_EXPORT int pthread_rwlock_init(pthread_rwlock_t *restrict lock, const pthread_rwlockattr_t *restrict attributes)
{
	return REAL(pthread_rwlock_init)(lock, attributes);
}

PTW_EXPORT int pthread_rwlock_destroy(pthread_rwlock_t *lock) { return REAL(pthread_rwlock_destroy)(lock); }

PTW_EXPORT int pthread_barrier_destroy(pthread_barrier_t *barrier) { return REAL(pthread_barrier_destroy)(barrier); }

PTW_EXPORT int sem_init(sem_t *semaphore, int process_shared, unsigned value)
{
	return REAL(sem_init)(semaphore, process_shared, value);
}

PTW_EXPORT int sem_destroy(sem_t *semaphore) { return REAL(sem_destroy)(semaphore); }

PTW_EXPORT int sem_getvalue(sem_t *restrict semaphore, int *restrict ret) { return REAL(sem_getvalue)(semaphore, ret); }

PTW_EXPORT int mtx_init(mtx_t *mutex, int type) { return REAL(mtx_init)(mutex, type); }

PTW_EXPORT void mtx_destroy(mtx_t *mutex) { REAL(mtx_destroy)(mutex); }

PTW_EXPORT int cnd_init(cnd_t *condition) { return REAL(cnd_init)(condition); }

PTW_EXPORT void cnd_destroy(cnd_t *condition) { REAL(cnd_destroy)(condition); }
