/* SPDX-License-Identifier: MIT */
/*
 * What LLVM's and Intel's compilers call of their OpenMP that a tool (openmp_tool.h) is told too late, or not at all: the
 * ends of critical sections after others may be in them, what iterations of a loop tell each other, and who puts a
 * reduction's parts together. A reduction's members release their parts before, and the one who puts two together acquires
 * them and releases what they make; a critical section may do it one after the other (`__kmpc_reduce` is 1).
 */
#define _GNU_SOURCE
#include "openmp_tool.h"

#include "event.h"
#include "openmp_team.h"

#define X(result, name, parameters) PTW_EXPORT result name parameters;
PTW_OPENMP_KMPC(X)
#undef X

static bool is_programs(const struct ptw_frame *caller) { return ptw_tracing() && !ptw_tool_is_told_of(caller->pc); }

/* --- one at a time --- */

#define LOCK(name, parameters, arguments, object)                                                             \
	void name parameters                                                                                  \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		const void *of = is_programs(&caller) ? object : NULL;                                        \
		uint64_t enter = ptw_tsc();                                                                   \
		if (of)                                                                                       \
			ptw_lock_prepare();                                                                   \
		openmp->name arguments;                                                                       \
		if (of)                                                                                       \
			ptw_lock_acquired(PTW_MUTEX_LOCK, &caller, enter, of, 0);                             \
	}
#define UNLOCK(name, parameters, arguments, object)                                                           \
	void name parameters                                                                                  \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		const void *of = is_programs(&caller) ? object : NULL;                                        \
		uint64_t enter = ptw_tsc(), version = of ? ptw_lock_releases(of) : 0;                         \
		openmp->name arguments;                                                                       \
		if (version)                                                                                  \
			ptw_log_release(PTW_MUTEX_UNLOCK, &caller, enter, of, 0, version);                    \
	}

LOCK(__kmpc_critical, (void *place, int thread, void *lock), (place, thread, lock), lock)
LOCK(__kmpc_critical_with_hint, (void *place, int thread, void *lock, uint32_t hint), (place, thread, lock, hint), lock)
UNLOCK(__kmpc_end_critical, (void *place, int thread, void *lock), (place, thread, lock), lock)
LOCK(__kmpc_ordered, (void *place, int thread), (place, thread), ptw_tool_object(PTW_TOOL_ORDER))
UNLOCK(__kmpc_end_ordered, (void *place, int thread), (place, thread), ptw_tool_object(PTW_TOOL_ORDER))

/* --- iterations --- */

void __kmpc_doacross_post(void *place, int thread, const int64_t *counts)
{
	struct ptw_frame caller = PTW_CALLER;
	const void *order = is_programs(&caller) ? ptw_tool_object(PTW_TOOL_ORDER) : NULL;
	if (order)
		ptw_team_release(PTW_SEM_POST, &caller, order, 0, 0);
	ptw_openmp_for(caller.pc)->__kmpc_doacross_post(place, thread, counts);
}

void __kmpc_doacross_wait(void *place, int thread, const int64_t *counts)
{
	struct ptw_frame caller = PTW_CALLER;
	const void *order = is_programs(&caller) ? ptw_tool_object(PTW_TOOL_ORDER) : NULL;
	uint64_t enter = ptw_tsc();
	ptw_openmp_for(caller.pc)->__kmpc_doacross_wait(place, thread, counts);
	if (order)
		ptw_team_acquire(PTW_SEM_WAIT, &caller, enter, order, 0, 0);
}

/* --- reductions --- */

/* The one this thread is in. */
static __thread ptw_openmp_copy *reduction __attribute__((tls_model("initial-exec")));

static void combine(void *to, void *from)
{
	struct ptw_frame caller = PTW_CALLER;
	const void *reduced = ptw_tool_object(PTW_TOOL_REDUCED);
	uint64_t enter = ptw_tsc();
	if (reduced)
		ptw_team_acquire(PTW_SEM_WAIT, &caller, enter, reduced, 0, 0);
	reduction(to, from);
	if (reduced)
		ptw_team_release(PTW_SEM_POST, &caller, reduced, 0, 0);
}

#define REDUCE(name)                                                                                          \
	int name(void *place, int thread, int count, size_t size, void *data, ptw_openmp_copy *function, void *lock) \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		const void *reduced = is_programs(&caller) ? ptw_tool_object(PTW_TOOL_REDUCED) : NULL;        \
		if (!reduced)                                                                                 \
			return openmp->name(place, thread, count, size, data, function, lock);                \
		ptw_team_release(PTW_SEM_POST, &caller, reduced, 0, 0);                                       \
		uint64_t enter = ptw_tsc();                                                                   \
		ptw_openmp_copy *outer = reduction;                                                           \
		reduction = function;                                                                         \
		ptw_tool_reduces(true);                                                                       \
		int result = openmp->name(place, thread, count, size, data, combine, lock);                   \
		ptw_tool_reduces(false);                                                                      \
		reduction = outer;                                                                            \
		ptw_team_acquire(PTW_SEM_WAIT, &caller, enter, reduced, 0, 0);                                \
		return result;                                                                                \
	}
#define END_REDUCE(name)                                                                                      \
	void name(void *place, int thread, void *lock)                                                        \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const void *reduced = is_programs(&caller) ? ptw_tool_object(PTW_TOOL_REDUCED) : NULL;        \
		if (reduced)                                                                                  \
			ptw_team_release(PTW_SEM_POST, &caller, reduced, 0, 0);                               \
		ptw_tool_reduces(reduced != NULL);                                                            \
		ptw_openmp_for(caller.pc)->name(place, thread, lock);                                         \
		ptw_tool_reduces(false);                                                                      \
	}

REDUCE(__kmpc_reduce)
REDUCE(__kmpc_reduce_nowait)
END_REDUCE(__kmpc_end_reduce)
END_REDUCE(__kmpc_end_reduce_nowait)
