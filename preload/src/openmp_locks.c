/* SPDX-License-Identifier: MIT */
/*
 * What one OpenMP thread has at a time, as mutexes are logged (sync_mutex.c): critical sections, atomic ones that the
 * processor has no instruction for, locks, and the turns of ordered loops. Unnamed sections are known by the library's
 * function. What iterations tell each other (doacross) is a semaphore: a wait sees every earlier post.
 */
#define _GNU_SOURCE
#include "openmp_team.h"

#include "event.h"
#include "openmp_tool.h"

#include <errno.h>
#include <stdarg.h>

void ptw_lock_prepare(void)
{
	if (ptw_process_mode)
		ptw_pages_prepare();
}

void ptw_lock_acquired(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter, const void *object,
		       int result)
{
	if (ptw_process_mode)
		ptw_pages_acquired();
	if (object && ptw_tracing())
		ptw_log_acquire(operation, caller, enter, object, result, result == 0);
}

uint64_t ptw_lock_releases(const void *object)
{
	uint64_t version = object && ptw_tracing() ? ptw_release(object) : 0;
	if (ptw_process_mode)
		ptw_pages_release();
	return version;
}

#define LOCK(name, parameters, arguments, object)                                                             \
	PTW_EXPORT void name parameters                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		uint64_t enter = ptw_tsc();                                                                   \
		ptw_lock_prepare();                                                                           \
		openmp->name arguments;                                                                       \
		ptw_lock_acquired(PTW_MUTEX_LOCK, &caller, enter, object, 0);                                 \
	}
#define UNLOCK(name, parameters, arguments, object)                                                           \
	PTW_EXPORT void name parameters                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		uint64_t enter = ptw_tsc(), version = ptw_lock_releases(object);                              \
		openmp->name arguments;                                                                       \
		if (version)                                                                                  \
			ptw_log_release(PTW_MUTEX_UNLOCK, &caller, enter, object, 0, version);                \
	}
#define TRY(name)                                                                                             \
	PTW_EXPORT int name(void *lock)                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		uint64_t enter = ptw_tsc();                                                                   \
		int result = openmp->name(lock);                                                              \
		ptw_team_boundary();                                                                          \
		if (ptw_tracing())                                                                            \
			ptw_log_acquire(PTW_MUTEX_TRYLOCK, &caller, enter, lock, result ? 0 : EBUSY, result); \
		return result;                                                                                \
	}

/* Turns are the team's. */
static const void *turn(void) { return ptw_team ? &ptw_team->name->order : ptw_tool_object(PTW_TOOL_ORDER); }

LOCK(GOMP_critical_start, (void), (), (const void *)openmp->GOMP_critical_start)
UNLOCK(GOMP_critical_end, (void), (), (const void *)openmp->GOMP_critical_start)
LOCK(GOMP_critical_name_start, (void **lock), (lock), lock)
UNLOCK(GOMP_critical_name_end, (void **lock), (lock), lock)
LOCK(GOMP_atomic_start, (void), (), (const void *)openmp->GOMP_atomic_start)
UNLOCK(GOMP_atomic_end, (void), (), (const void *)openmp->GOMP_atomic_start)
LOCK(GOMP_ordered_start, (void), (), turn())
UNLOCK(GOMP_ordered_end, (void), (), turn())
LOCK(omp_set_lock, (void *lock), (lock), lock)
UNLOCK(omp_unset_lock, (void *lock), (lock), lock)
TRY(omp_test_lock)
LOCK(omp_set_nest_lock, (void *lock), (lock), lock)
UNLOCK(omp_unset_nest_lock, (void *lock), (lock), lock)
TRY(omp_test_nest_lock)
LOCK(omp_set_lock_, (void *lock), (lock), lock)
UNLOCK(omp_unset_lock_, (void *lock), (lock), lock)
TRY(omp_test_lock_)
LOCK(omp_set_nest_lock_, (void *lock), (lock), lock)
UNLOCK(omp_unset_nest_lock_, (void *lock), (lock), lock)
TRY(omp_test_nest_lock_)

/* --- doacross --- */

#define POST(name, type)                                                                                      \
	PTW_EXPORT void name(type *counts)                                                                    \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		if (turn())                                                                                   \
			ptw_team_release(PTW_SEM_POST, &caller, turn(), 0, 0);                                \
		openmp->name(counts);                                                                         \
	}

POST(GOMP_doacross_post, long)
POST(GOMP_doacross_ull_post, unsigned long long)

/* How many numbers there are only the library knows: as many are handed on as loops may be nested, though what lies behind
 * those that there are is something else. */
#define WAIT(name, type)                                                                                      \
	PTW_EXPORT void name(type first, ...)                                                                 \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		uint64_t enter = ptw_tsc();                                                                   \
		type other[NESTED];                                                                           \
		va_list list;                                                                                 \
		va_start(list, first);                                                                        \
		for (unsigned i = 0; i < NESTED; i++)                                                         \
			other[i] = va_arg(list, type);                                                        \
		va_end(list);                                                                                 \
		openmp->name(first, other[0], other[1], other[2], other[3], other[4], other[5], other[6], other[7],  \
			     other[8], other[9], other[10], other[11], other[12], other[13], other[14]);      \
		if (turn())                                                                                   \
			ptw_team_acquire(PTW_SEM_WAIT, &caller, enter, turn(), 0, 0);                         \
	}

enum { NESTED = 15 };

WAIT(GOMP_doacross_wait, long)
WAIT(GOMP_doacross_ull_wait, unsigned long long)
