/* SPDX-License-Identifier: MIT */
/* Condition variables between processes; psync.h says how. */
#define _GNU_SOURCE
#include "alias.h"
#include "pages.h"
#include "psync.h"

enum {
	COND_SHARED = 1, /* __PTHREAD_COND_SHARED_MASK */
	KIND_SHARED = 0x80,
};

static pthread_cond_t *shared(pthread_cond_t *condition)
{
	pthread_cond_t *alias = ptw_alias_of(condition);
	if (!(__atomic_load_n(&alias->__data.__wrefs, __ATOMIC_RELAXED) & COND_SHARED) &&
	    ptw_alias_is_shared(condition, alias))
		__atomic_fetch_or(&alias->__data.__wrefs, COND_SHARED, __ATOMIC_ACQ_REL);
	return alias;
}

static pthread_mutex_t *shared_mutex(pthread_mutex_t *mutex)
{
	pthread_mutex_t *alias = ptw_alias_of(mutex);
	if (!(__atomic_load_n(&alias->__data.__kind, __ATOMIC_RELAXED) & KIND_SHARED) && ptw_alias_is_shared(mutex, alias))
		__atomic_fetch_or(&alias->__data.__kind, KIND_SHARED, __ATOMIC_ACQ_REL);
	return alias;
}

static int init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
	pthread_condattr_t copy;
	if (attributes)
		copy = *attributes;
	return GLIBC(pthread_cond_init)(ptw_alias_of(condition), attributes ? &copy : NULL);
}

static int destroy(pthread_cond_t *condition) { return GLIBC(pthread_cond_destroy)(shared(condition)); }

#define WAIT(call)                    \
	int result = (call);          \
	ptw_pages_boundary();         \
	return result

static int wait_for(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex)
{
	WAIT(GLIBC(pthread_cond_wait)(shared(condition), shared_mutex(mutex)));
}

static int timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
		     const struct timespec *restrict until)
{
	struct timespec copy = *until;
	WAIT(GLIBC(pthread_cond_timedwait)(shared(condition), shared_mutex(mutex), &copy));
}

static int clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
		     const struct timespec *restrict until)
{
	struct timespec copy = *until;
	WAIT(GLIBC(pthread_cond_clockwait)(shared(condition), shared_mutex(mutex), clock, &copy));
}

static int signal_one(pthread_cond_t *condition)
{
	ptw_pages_boundary();
	return GLIBC(pthread_cond_signal)(shared(condition));
}

static int broadcast(pthread_cond_t *condition)
{
	ptw_pages_boundary();
	return GLIBC(pthread_cond_broadcast)(shared(condition));
}

/* --- C11: cnd_t is a pthread_cond_t --- */

static cnd_t *shared11(cnd_t *condition) { return (cnd_t *)shared((pthread_cond_t *)condition); }

static mtx_t *shared_mutex11(mtx_t *mutex) { return (mtx_t *)shared_mutex((pthread_mutex_t *)mutex); }

static int init11(cnd_t *condition) { return GLIBC(cnd_init)(ptw_alias_of(condition)); }

static void destroy11(cnd_t *condition) { GLIBC(cnd_destroy)(shared11(condition)); }

static int wait11(cnd_t *condition, mtx_t *mutex)
{
	WAIT(GLIBC(cnd_wait)(shared11(condition), shared_mutex11(mutex)));
}

static int timedwait11(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
	struct timespec copy = *until;
	WAIT(GLIBC(cnd_timedwait)(shared11(condition), shared_mutex11(mutex), &copy));
}

static int signal11(cnd_t *condition)
{
	ptw_pages_boundary();
	return GLIBC(cnd_signal)(shared11(condition));
}

static int broadcast11(cnd_t *condition)
{
	ptw_pages_boundary();
	return GLIBC(cnd_broadcast)(shared11(condition));
}

void ptw_psync_cond_use(struct ptw_real *table)
{
	table->pthread_cond_init = init;
	table->pthread_cond_destroy = destroy;
	table->pthread_cond_wait = wait_for;
	table->pthread_cond_timedwait = timedwait;
	table->pthread_cond_clockwait = clockwait;
	table->pthread_cond_signal = signal_one;
	table->pthread_cond_broadcast = broadcast;
	table->cnd_init = init11;
	table->cnd_destroy = destroy11;
	table->cnd_wait = wait11;
	table->cnd_timedwait = timedwait11;
	table->cnd_signal = signal11;
	table->cnd_broadcast = broadcast11;
}
