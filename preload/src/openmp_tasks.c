/* SPDX-License-Identifier: MIT */
/*
 * OpenMP's tasks. Who makes one releases (TASK); it begins with an acquire and ends with a release (TASK_BEGIN, TASK_END),
 * in whichever thread runs it; who waited for tasks acquires (TASK_WAIT). A team's tasks are two objects, those made and
 * those done: a wait joins all that were done before, not its own alone, and so does a task with dependences.
 *
 * The library copies a task's data and gives them to its function. So that we are asked first it gets another function: one
 * of a row of small ones, each of which stands for a function of the program's.
 */
#define _GNU_SOURCE
#include "openmp_team.h"

#include "event.h"
#include "notice.h"

PTW_HIDDEN extern const char ptw_task_entries[]; /* each of STRIDE bytes */
PTW_HIDDEN void ptw_task_run(void *data, unsigned entry);

enum { ENTRIES = PTW_TASK_BODIES, STRIDE = 16 };
_Static_assert(ENTRIES == 1024, "as many as there are below");

__asm__(".pushsection .text\n"
	".hidden ptw_task_entries\n"
	".globl ptw_task_entries\n"
	".type ptw_task_entries, @function\n"
	"	.balign 16\n"
	"ptw_task_entries:\n"
	".cfi_startproc\n"
	".set ptw_task_entry, 0\n"
	".rept 1024\n"
	"	.balign 16\n"
	"	movl $ptw_task_entry, %esi\n"
	"	jmp ptw_task_run\n"
	".set ptw_task_entry, ptw_task_entry + 1\n"
	".endr\n"
	"	.balign 16\n"
	".cfi_endproc\n"
	".size ptw_task_entries, .-ptw_task_entries\n"
	".popsection\n");

/* What the entries stand for: a function of the program's and, in the highest bit, whether it has dependences. */
static uint64_t own_bodies[ENTRIES];
enum { DEPENDS_BIT = 63 };

static uint64_t *bodies(void) { return ptw_process_mode ? ptw_shared->task_bodies : own_bodies; }

/* The function to give instead of `body`; itself where there are too many. */
static ptw_openmp_body *entry_for(ptw_openmp_body *body, bool depends)
{
	uint64_t wanted = (uint64_t)body | (uint64_t)depends << DEPENDS_BIT, at = wanted * 0x9e3779b97f4a7c15ull >> 40;
	for (unsigned probe = 0; probe < ENTRIES; probe++) {
		unsigned entry = (at + probe) % ENTRIES;
		uint64_t found = __atomic_load_n(&bodies()[entry], __ATOMIC_ACQUIRE);
		if (found == wanted ||
		    (!found && (__atomic_compare_exchange_n(&bodies()[entry], &found, wanted, false, __ATOMIC_ACQ_REL,
							    __ATOMIC_ACQUIRE) || found == wanted)))
			return (ptw_openmp_body *)(ptw_task_entries + entry * STRIDE);
	}
	ptw_notice(PTW_NOTICE_LIMIT, NULL, "more than 1024 functions are OpenMP tasks: of the others it is not known when they run");
	return body;
}

void ptw_task_run(void *data, unsigned entry)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t enter = ptw_tsc(), found = __atomic_load_n(&bodies()[entry], __ATOMIC_ACQUIRE);
	struct ptw_team *team = ptw_team;
	ptw_openmp_body *body = (ptw_openmp_body *)(found & ~(1ull << DEPENDS_BIT));
	if (!team) {
		body(data);
		return;
	}
	ptw_team_acquire(PTW_TASK_BEGIN, &caller, enter, &team->name->tasks, 0, 0);
	if (found >> DEPENDS_BIT)
		ptw_team_acquire(PTW_TASK_WAIT, &caller, enter, &team->name->tasks_done, 0, 0);
	body(data);
	ptw_team_release(PTW_TASK_END, &caller, &team->name->tasks_done, 0, 0);
}

/* A task is about to be made: what the library is to run. */
static ptw_openmp_body *made(const struct ptw_frame *caller, ptw_openmp_body *body, unsigned flags)
{
	if (!ptw_team)
		return body;
	__atomic_store_n(&ptw_team->has_tasks, 1, __ATOMIC_RELEASE);
	ptw_team_release(PTW_TASK, caller, &ptw_team->name->tasks, 0, 0);
	return entry_for(body, flags & PTW_OPENMP_TASK_DEPENDS);
}

PTW_EXPORT void GOMP_task(ptw_openmp_body *body, void *data, ptw_openmp_copy *copy, long size, long align, bool deferred,
			  unsigned flags, void **depend, int priority, void *detach)
{
	struct ptw_frame caller = PTW_CALLER;
	ptw_openmp_for(caller.pc)->GOMP_task(made(&caller, body, flags), data, copy, size, align, deferred, flags, depend,
					     priority, detach);
}

#define TASKLOOP(name, type)                                                                                  \
	PTW_EXPORT void name(ptw_openmp_body *body, void *data, ptw_openmp_copy *copy, long size, long align, \
			     unsigned flags, unsigned long tasks, int priority, type start, type end, type step) \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		body = made(&caller, body, 0);                                                                \
		uint64_t enter = ptw_tsc();                                                                   \
		openmp->name(body, data, copy, size, align, flags, tasks, priority, start, end, step);        \
		if (!(flags & PTW_OPENMP_TASK_NO_GROUP))                                                      \
			ptw_team_meet_tasks(&caller, enter);                                                  \
	}

TASKLOOP(GOMP_taskloop, long)
TASKLOOP(GOMP_taskloop_ull, unsigned long long)

#define WAIT(name, parameters, arguments)                                                                     \
	PTW_EXPORT void name parameters                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		ptw_team_boundary();                                                                          \
		uint64_t enter = ptw_tsc();                                                                   \
		ptw_openmp_for(caller.pc)->name arguments;                                                    \
		ptw_team_meet_tasks(&caller, enter);                                                          \
	}

WAIT(GOMP_taskwait, (void), ())
WAIT(GOMP_taskwait_depend, (void **depend), (depend))
WAIT(GOMP_taskgroup_end, (void), ())
