/* SPDX-License-Identifier: MIT */
/*
 * Parallel regions and what their members wait for together; openmp_team.h says what is logged.
 *
 * A team's barrier is one object (BARRIER_ARRIVE, BARRIER_WAIT, as pthread_barrier_wait logs them). The next region of the
 * same maker has the same one, if it has as many members: versions say then which arrivals belong together. After a region
 * that was cancelled, in which some did not arrive, its maker's regions have others.
 */
#define _GNU_SOURCE
#include "openmp_team.h"

#include "alias.h"
#include "event.h"
#include "openmp_tool.h"

/* Where one thread does what the others then get, it arrives behind that: which is the first is known when it is. */
static __thread struct ptw_passage single __attribute__((tls_model("initial-exec")));

static __thread uint32_t cancelled __attribute__((tls_model("initial-exec"))); /* regions that this thread made */

__thread struct ptw_team *ptw_team __attribute__((tls_model("initial-exec")));

#define X(result, name, parameters) PTW_EXPORT result name parameters;
PTW_OPENMP_FUNCTIONS(X)
#undef X

void ptw_team_release(enum ptw_operation operation, const struct ptw_frame *caller, const void *object, int64_t result,
		      uint64_t argument)
{
	ptw_team_boundary();
	if (!ptw_tracing())
		return;
	uint64_t enter = ptw_tsc();
	struct ptw_event event = {operation, (uint64_t)object, result, ptw_release(object), argument};
	ptw_log(&event, caller, enter, ptw_tsc());
}

void ptw_team_acquire(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter, const void *object,
		      int64_t result, uint64_t argument)
{
	ptw_team_boundary();
	if (!ptw_tracing())
		return;
	struct ptw_event event = {operation, (uint64_t)object, result, ptw_acquire(object), argument};
	ptw_log(&event, caller, enter, ptw_tsc());
}

void ptw_team_meet_tasks(const struct ptw_frame *caller, uint64_t enter)
{
	if (ptw_team && __atomic_load_n(&ptw_team->has_tasks, __ATOMIC_ACQUIRE))
		ptw_team_acquire(PTW_TASK_WAIT, caller, enter, &ptw_team->name->tasks_done, 0, 0);
}

/* --- members --- */

/* What each member of a team does instead of the region's body. When this returns the library has it do what tasks are
 * left, before the region is over: it stays in the team. Its maker leaves the team when it is (`join`); the others do
 * nothing before they are in the next. */
static void work(void *data)
{
	struct ptw_team *team = data;
	struct ptw_frame caller = PTW_CALLER;
	uint64_t enter = ptw_tsc();
	ptw_openmp_learn(team->code, &team->functions);
	uint32_t count = (uint32_t)team->functions.omp_get_num_threads();
	int64_t number = team->functions.omp_get_thread_num();
	ptw_team = team;
	ptw_team_acquire(PTW_TEAM_BEGIN, &caller, enter, &team->name->begin, number, count);
	team->body(team->data);
	ptw_team_release(PTW_TEAM_END, &caller, &team->name->end, number, count);
	if (number == 0)
		team->made_free = ptw_tsc();
}

/* --- who makes a team --- */

static void *make(struct ptw_team *team, const struct ptw_frame *caller, ptw_openmp_body *body, void *data, unsigned count)
{
	team->reductions = NULL;
	team->name = team;
	team->outer = ptw_team;
	team->outer_single = single;
	team->body = body;
	team->data = data;
	team->functions = *ptw_openmp_for(caller->pc);
	team->code = caller->pc;
	team->shift = cancelled;
	team->has_tasks = team->is_cancelled = 0;
	team->made_free = 0;
	ptw_team_release(PTW_TEAM, caller, &team->begin, 0, count);
	return ptw_process_mode ? ptw_alias_of(team) : team;
}

static void join(struct ptw_team *team, const struct ptw_frame *caller)
{
	uint64_t enter = team->made_free;
	ptw_team_acquire(PTW_TEAM_JOIN, caller, enter, &team->end, 0, 0);
	ptw_team_meet_tasks(caller, enter);
	cancelled += team->is_cancelled;
	ptw_team = team->outer;
	single = team->outer_single;
}

#define LIST(...) __VA_ARGS__
#define REGION(name, parameters, arguments)                                                                   \
	void name(ptw_openmp_body *body, void *data, unsigned count, LIST parameters)                         \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		struct ptw_team team;                                                                         \
		const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);                                  \
		if (ptw_tool_is_told(openmp)) {                                                               \
			openmp->name(body, data, count, LIST arguments);                                      \
			return;                                                                               \
		}                                                                                             \
		void *shared = make(&team, &caller, body, data, count);                                       \
		team.functions.name(work, shared, count, LIST arguments);                                    \
		join(&team, &caller);                                                                         \
	}
#define LOOP(name) REGION(name, (long start, long end, long step, unsigned flags), (start, end, step, flags))
#define CHUNKED(name)                                                                                         \
	REGION(name, (long start, long end, long step, long chunk, unsigned flags), (start, end, step, chunk, flags))

REGION(GOMP_parallel, (unsigned flags), (flags))
REGION(GOMP_parallel_sections, (unsigned sections, unsigned flags), (sections, flags))
CHUNKED(GOMP_parallel_loop_static)
CHUNKED(GOMP_parallel_loop_dynamic)
CHUNKED(GOMP_parallel_loop_guided)
CHUNKED(GOMP_parallel_loop_nonmonotonic_dynamic)
CHUNKED(GOMP_parallel_loop_nonmonotonic_guided)
LOOP(GOMP_parallel_loop_runtime)
LOOP(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

unsigned GOMP_parallel_reductions(ptw_openmp_body *body, void *data, unsigned count, unsigned flags)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_team team;
	const struct ptw_openmp *openmp = ptw_openmp_for(caller.pc);
	if (ptw_tool_is_told(openmp))
		return openmp->GOMP_parallel_reductions(body, data, count, flags);
	struct ptw_team *shared = make(&team, &caller, body, data, count);
	team.reductions = *(void **)data;
	unsigned result = team.functions.GOMP_parallel_reductions(work, shared, count, flags);
	join(&team, &caller);
	return result;
}

/* --- barriers --- */

static struct ptw_passage arrival(const struct ptw_frame *caller)
{
	struct ptw_passage passage = {.openmp = ptw_openmp_for(caller->pc), .team = ptw_team};
	ptw_team_boundary(); /* before the arrival is logged: a thunk of its own begins there */
	ptw_team_boundary(); /* the arrival begins a thunk in which nothing is accessed */
	passage.enter = ptw_tsc();
	if (!ptw_tracing())
		passage.team = NULL;
	if (passage.team) {
		passage.count = (uint64_t)passage.openmp->omp_get_num_threads();
		passage.barrier = &passage.team->name->barrier[(passage.count + passage.team->shift) % PTW_SLOTS];
		passage.version = ptw_release(passage.barrier);
	}
	return passage;
}

static void log_arrival(const struct ptw_passage *passage, const struct ptw_frame *caller)
{
	if (!passage->team)
		return;
	struct ptw_event arrive = {PTW_BARRIER_ARRIVE, (uint64_t)passage->barrier, 0, passage->version, passage->count};
	ptw_log(&arrive, caller, passage->enter, ptw_tsc());
}

static struct ptw_passage arrive(const struct ptw_frame *caller)
{
	struct ptw_passage passage = arrival(caller);
	log_arrival(&passage, caller);
	return passage;
}

static void leave(const struct ptw_passage *passage, const struct ptw_frame *caller)
{
	if (passage->team) {
		ptw_team_acquire(PTW_BARRIER_WAIT, caller, passage->enter, passage->barrier, 0, passage->count);
		ptw_team_meet_tasks(caller, passage->enter);
	} else {
		ptw_team_boundary();
	}
}

#define BARRIER(name)                                                                                         \
	void name(void)                                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		struct ptw_passage passage = arrive(&caller);                                                     \
		passage.openmp->name();                                                                       \
		leave(&passage, &caller);                                                                     \
	}
#define CANCELLED(name)                                                                                       \
	bool name(void)                                                                                       \
	{                                                                                                     \
		struct ptw_frame caller = PTW_CALLER;                                                         \
		struct ptw_passage passage = arrive(&caller);                                                     \
		bool result = passage.openmp->name();                                                         \
		leave(&passage, &caller);                                                                     \
		return result;                                                                                \
	}

BARRIER(GOMP_barrier)
BARRIER(GOMP_loop_end)
BARRIER(GOMP_sections_end)
CANCELLED(GOMP_barrier_cancel)
CANCELLED(GOMP_loop_end_cancel)
CANCELLED(GOMP_sections_end_cancel)

void GOMP_workshare_task_reduction_unregister(bool cancelled)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_passage passage = arrive(&caller);
	passage.openmp->GOMP_workshare_task_reduction_unregister(cancelled);
	leave(&passage, &caller);
}

void *GOMP_single_copy_start(void)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_passage passage = arrival(&caller);
	void *result = passage.openmp->GOMP_single_copy_start();
	if (result) {
		log_arrival(&passage, &caller);
		leave(&passage, &caller);
	} else {
		single = passage;
	}
	return result;
}

void GOMP_single_copy_end(void *data)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_passage passage = single;
	if (!passage.openmp)
		passage.openmp = ptw_openmp_for(caller.pc);
	ptw_team_boundary();
	ptw_team_boundary();
	passage.enter = ptw_tsc();
	log_arrival(&passage, &caller);
	passage.openmp->GOMP_single_copy_end(data);
	leave(&passage, &caller);
}

/* The members go to the region's end from wherever they are, past its barriers. */
bool GOMP_cancel(int what, bool wanted)
{
	struct ptw_frame caller = PTW_CALLER;
	bool result = ptw_openmp_for(caller.pc)->GOMP_cancel(what, wanted);
	if (result && what & PTW_OPENMP_CANCEL_PARALLEL && ptw_team)
		__atomic_store_n(&ptw_team->is_cancelled, 1, __ATOMIC_RELEASE);
	return result;
}
