/* SPDX-License-Identifier: MIT */
/* Mutexes and spin locks between processes; psync.h says how. */
#define _GNU_SOURCE
#include "alias.h"
#include "pages.h"
#include "psync.h"

#include <errno.h>

enum { KIND_SHARED = 0x80 }; /* PTHREAD_MUTEX_PSHARED_BIT */

static pthread_mutex_t *shared(pthread_mutex_t *mutex)
{
	pthread_mutex_t *alias = ptw_alias_of(mutex);
	if (!(__atomic_load_n(&alias->__data.__kind, __ATOMIC_RELAXED) & KIND_SHARED) && ptw_alias_is_shared(mutex, alias))
		__atomic_fetch_or(&alias->__data.__kind, KIND_SHARED, __ATOMIC_ACQ_REL);
	return alias;
}

static int acquired(int result)
{
	ptw_pages_acquired();
	return result;
}

/* Where nobody could tell before whether it waits. */
static int tried(int result)
{
	ptw_pages_boundary();
	return result;
}

static int init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
	pthread_mutexattr_t copy;
	if (attributes)
		copy = *attributes;
	return GLIBC(pthread_mutex_init)(ptw_alias_of(mutex), attributes ? &copy : NULL);
}

static int destroy(pthread_mutex_t *mutex) { return GLIBC(pthread_mutex_destroy)(shared(mutex)); }

static int lock(pthread_mutex_t *mutex)
{
	ptw_pages_prepare();
	return acquired(GLIBC(pthread_mutex_lock)(shared(mutex)));
}

static int trylock(pthread_mutex_t *mutex) { return tried(GLIBC(pthread_mutex_trylock)(shared(mutex))); }

static int timedlock(pthread_mutex_t *mutex, const struct timespec *until)
{
	ptw_pages_prepare();
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_mutex_timedlock)(shared(mutex), &copy));
}

static int clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	ptw_pages_prepare();
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_mutex_clocklock)(shared(mutex), clock, &copy));
}

static int unlock(pthread_mutex_t *mutex)
{
	ptw_pages_release();
	return GLIBC(pthread_mutex_unlock)(shared(mutex));
}

static int consistent(pthread_mutex_t *mutex) { return GLIBC(pthread_mutex_consistent)(shared(mutex)); }

/* --- spin locks: one word, and glibc waits actively --- */

static int spin_init(pthread_spinlock_t *spin, int process_shared)
{
	return GLIBC(pthread_spin_init)(ptw_alias_of((const void *)spin), process_shared);
}

static int spin_destroy(pthread_spinlock_t *spin) { return GLIBC(pthread_spin_destroy)(spin); }

static int spin_lock(pthread_spinlock_t *spin)
{
	return tried(GLIBC(pthread_spin_lock)(ptw_alias_of((const void *)spin)));
}

static int spin_trylock(pthread_spinlock_t *spin)
{
	return tried(GLIBC(pthread_spin_trylock)(ptw_alias_of((const void *)spin)));
}

static int spin_unlock(pthread_spinlock_t *spin)
{
	ptw_pages_boundary();
	return GLIBC(pthread_spin_unlock)(ptw_alias_of((const void *)spin));
}

/* --- C11: mtx_t is a pthread_mutex_t --- */

static mtx_t *shared11(mtx_t *mutex) { return (mtx_t *)shared((pthread_mutex_t *)mutex); }

static int init11(mtx_t *mutex, int type) { return GLIBC(mtx_init)(ptw_alias_of(mutex), type); }

static void destroy11(mtx_t *mutex) { GLIBC(mtx_destroy)(shared11(mutex)); }

static int lock11(mtx_t *mutex)
{
	ptw_pages_prepare();
	return acquired(GLIBC(mtx_lock)(shared11(mutex)));
}

static int trylock11(mtx_t *mutex) { return tried(GLIBC(mtx_trylock)(shared11(mutex))); }

static int timedlock11(mtx_t *restrict mutex, const struct timespec *restrict until)
{
	ptw_pages_prepare();
	struct timespec copy = *until;
	return acquired(GLIBC(mtx_timedlock)(shared11(mutex), &copy));
}

static int unlock11(mtx_t *mutex)
{
	ptw_pages_release();
	return GLIBC(mtx_unlock)(shared11(mutex));
}

void ptw_psync_mutex_use(struct ptw_real *table)
{
	table->pthread_mutex_init = init;
	table->pthread_mutex_destroy = destroy;
	table->pthread_mutex_lock = lock;
	table->pthread_mutex_trylock = trylock;
	table->pthread_mutex_timedlock = timedlock;
	table->pthread_mutex_clocklock = clocklock;
	table->pthread_mutex_unlock = unlock;
	table->pthread_mutex_consistent = consistent;
	table->pthread_spin_init = spin_init;
	table->pthread_spin_destroy = spin_destroy;
	table->pthread_spin_lock = spin_lock;
	table->pthread_spin_trylock = spin_trylock;
	table->pthread_spin_unlock = spin_unlock;
	table->mtx_init = init11;
	table->mtx_destroy = destroy11;
	table->mtx_lock = lock11;
	table->mtx_trylock = trylock11;
	table->mtx_timedlock = timedlock11;
	table->mtx_unlock = unlock11;
}
