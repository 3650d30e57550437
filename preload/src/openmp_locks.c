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

/* Behind the first of them; of these, so many are passed in registers. */
enum { NESTED = 63, IN_REGISTERS = 5 };

/* How many numbers there are only the library knows: as many are handed on as loops may be nested, though what lies behind
 * those that there are is something else. A structure of this size is passed where arguments are that have no register. */
#define WAIT(name, type)                                                                                      \
	struct name##_counts {                                                                                \
		type on_stack[NESTED - IN_REGISTERS];                                                         \
	};                                                                                                    \
	PTW_EXPORT void name(type first, ...)                                                                 \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		void (*wait)(type, type, type, type, type, type, struct name##_counts);                       \
		*(void **)&wait = (void *)ptw_openmp_for(caller.pc)->name;                                     \
		uint64_t enter = ptw_tsc();                                                                   \
		type in[IN_REGISTERS];                                                                        \
		struct name##_counts rest;                                                                    \
		va_list list;                                                                                 \
		va_start(list, first);                                                                        \
		for (unsigned i = 0; i < NESTED; i++)                                                         \
			*(i < IN_REGISTERS ? &in[i] : &rest.on_stack[i - IN_REGISTERS]) = va_arg(list, type); \
		va_end(list);                                                                                 \
		wait(first, in[0], in[1], in[2], in[3], in[4], rest);                                         \
		if (turn())                                                                                   \
			ptw_team_acquire(PTW_SEM_WAIT, &caller, enter, turn(), 0, 0);                         \
	}

WAIT(GOMP_doacross_wait, long)
WAIT(GOMP_doacross_ull_wait, unsigned long long)
