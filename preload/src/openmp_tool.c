/* SPDX-License-Identifier: MIT */
/*
 * What OpenMP's runtime tells; openmp_tool.h says who is meant.
 *
 * A region's end is a barrier, too, of which a member does not hear that it is over before it begins the next region, or
 * ends: its part ends where it comes there, and the maker's waiting where the region is over. Before OpenMP 5.1 that
 * barrier is told like those of loops: it has no place in the program, but for the maker's, which is the region's.
 */
#define _GNU_SOURCE
#include "openmp_tool.h"

#include "event.h"
#include "next.h"
#include "notice.h"
#include "openmp_team.h"

#include <dlfcn.h>
#include <stdlib.h>

/* OpenMP 5.0, 4.4 ("Types"), and what 5.1 adds to them. */
enum { SCOPE_BEGIN = 1, SCOPE_END = 2 };
enum { TASK_INITIAL = 1, TASK_EXPLICIT = 4 };
enum { STATUS_COMPLETE = 1, STATUS_CANCEL = 3 };
enum { CANCEL_PARALLEL = 1 };
enum {
	SYNC_BARRIER = 1,
	SYNC_IMPLICIT = 2,
	SYNC_EXPLICIT = 3,
	SYNC_IMPLEMENTATION = 4,
	SYNC_TASKWAIT = 5,
	SYNC_TASKGROUP = 6,
	SYNC_WORKSHARE = 8,
	SYNC_PARALLEL = 9,
	SYNC_TEAMS = 10,
};
enum {
	ON_PARALLEL_BEGIN = 3,
	ON_PARALLEL_END = 4,
	ON_TASK_CREATE = 5,
	ON_TASK_SCHEDULE = 6,
	ON_IMPLICIT_TASK = 7,
	ON_SYNC_REGION = 23,
	ON_CANCEL = 30,
};

/* What the runtime carries for us with each region and task. */
union carried {
	uint64_t value;
	void *pointer;
};

typedef void callback(void);
typedef callback *lookup(const char *name);
typedef int set_callback(int which, callback *function);

struct tool {
	int (*initialize)(lookup *look, int device, union carried *own);
	void (*finalize)(union carried *own);
	union carried own;
};

PTW_EXPORT struct tool *ompt_start_tool(unsigned version, const char *name);

/* A team's number: a mark, its maker, how deep that makes teams, and how many of them were cancelled. The lowest bits are an
 * object's, or what is known of a task. */
enum { OBJECT_BITS = 12, CANCELLED_BITS = 4, LEVEL_BITS = 3, LEVELS = 1 << LEVEL_BITS };
#define MARK (0x4f4dull << 48)
enum { OF_TASK = 1, DEPENDS = 2, BEGUN = 4 };
_Static_assert((PTW_TOOL_BARRIERS + PTW_SLOTS) * 2 <= 1 << OBJECT_BITS, "each object has a name");

struct made {
	uint64_t team;
	const void *code;
	uint64_t free; /* when its maker had done its own part */
};

struct member {
	uint64_t team; /* 0: not known */
	uint32_t count, index;
	const void *barrier; /* that it arrived at, and may do tasks in that make teams; NULL: none */
	uint64_t enter;
};

static __thread struct {
	struct made made[LEVELS];
	struct member member[LEVELS];
	uint32_t n_made, n_member; /* they may be more */
	uint32_t cancelled;
	bool reduces;
} self __attribute__((tls_model("initial-exec")));

static struct {
	const struct link_map *runtime;
	uint32_t has_tasks;
} own;

static const struct link_map **runtime(void) { return ptw_process_mode ? &ptw_shared->openmp_runtime : &own.runtime; }
static uint32_t *has_tasks(void) { return ptw_process_mode ? &ptw_shared->openmp_has_tasks : &own.has_tasks; }

static const void *object_of(uint64_t team, unsigned which)
{
	return team ? (const void *)((team & ~0ull << OBJECT_BITS) | which << 1) : NULL;
}

static struct member *member(void)
{
	return self.n_member && self.n_member <= LEVELS && self.member[self.n_member - 1].team ? &self.member[self.n_member - 1]
											      : NULL;
}

static struct made *made(void) { return self.n_made && self.n_made <= LEVELS ? &self.made[self.n_made - 1] : NULL; }

const void *ptw_tool_object(enum ptw_tool_object which)
{
	const struct member *here = member();
	return here ? object_of(here->team, which) : NULL;
}

bool ptw_tool_is_told_of(uint64_t pc)
{
	const struct link_map *map = __atomic_load_n(runtime(), __ATOMIC_ACQUIRE), *from = map ? ptw_next_object_at(pc) : NULL;
	return map && (from == map || from == ptw_next_object_at((uint64_t)ompt_start_tool));
}

bool ptw_tool_is_told(const struct ptw_openmp *openmp)
{
	const struct link_map *map = __atomic_load_n(runtime(), __ATOMIC_ACQUIRE);
	return map && openmp->library == map;
}

void ptw_tool_reduces(bool begins) { self.reduces = begins; }

/* What a team's tasks have done until now is seen, if there ever were any. */
static void meet_tasks(const struct ptw_frame *caller, uint64_t enter, uint64_t team)
{
	if (__atomic_load_n(has_tasks(), __ATOMIC_ACQUIRE))
		ptw_team_acquire(PTW_TASK_WAIT, caller, enter, object_of(team, PTW_TOOL_TASKS_DONE), 0, 0);
}

/* --- regions --- */

static void parallel_begin(union carried *maker, const void *frame, union carried *team, unsigned count, int flags,
			   const void *code)
{
	struct ptw_frame caller = PTW_CALLER;
	const uint64_t level = self.n_made++;
	(void)maker, (void)frame, (void)flags;
	team->value = 0;
	if (level >= LEVELS)
		return;
	team->value = MARK | ((uint64_t)ptw_gettid() << LEVEL_BITS | level) << (CANCELLED_BITS + OBJECT_BITS) |
		      (self.cancelled & ((1u << CANCELLED_BITS) - 1)) << OBJECT_BITS;
	self.made[level] = (struct made){.team = team->value, .code = code};
	ptw_team_release(PTW_TEAM, &caller, object_of(team->value, PTW_TOOL_BEGIN), 0, count);
}

static void parallel_end(union carried *team, union carried *maker, int flags, const void *code)
{
	struct ptw_frame caller = PTW_CALLER;
	const struct made *region = made();
	(void)team, (void)maker, (void)flags, (void)code;
	if (region) {
		ptw_team_acquire(PTW_TEAM_JOIN, &caller, region->free, object_of(region->team, PTW_TOOL_END), 0, 0);
		meet_tasks(&caller, region->free, region->team);
	}
	if (self.n_made)
		self.n_made--;
}

static void implicit_task(int scope, union carried *team, union carried *task, unsigned count, unsigned index, int flags)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t enter = ptw_tsc();
	(void)task;
	if (flags & TASK_INITIAL)
		return;
	if (scope == SCOPE_END) {
		if (self.n_member)
			self.n_member--;
		return;
	}
	if (self.n_member++ >= LEVELS)
		return;
	self.member[self.n_member - 1] = (struct member){.team = team ? team->value : 0, .count = count, .index = index};
	if (member())
		ptw_team_acquire(PTW_TEAM_BEGIN, &caller, enter, ptw_tool_object(PTW_TOOL_BEGIN), index, count);
}

/* --- barriers and waits --- */

static bool is_barrier(int kind)
{
	return kind == SYNC_BARRIER || kind == SYNC_IMPLICIT || kind == SYNC_EXPLICIT || kind == SYNC_WORKSHARE ||
	       (kind == SYNC_IMPLEMENTATION && !self.reduces);
}

static bool is_end_of_region(int kind, const void *code)
{
	return kind == SYNC_PARALLEL || kind == SYNC_TEAMS ||
	       (kind == SYNC_IMPLICIT && (!code || (member()->index == 0 && made() && made()->code == code)));
}

static void end_part(const struct ptw_frame *caller)
{
	const struct member *here = member();
	ptw_team_release(PTW_TEAM_END, caller, ptw_tool_object(PTW_TOOL_END), here->index, here->count);
	if (here->index == 0 && made())
		made()->free = ptw_tsc();
}

static void arrive(struct member *here, const struct ptw_frame *caller)
{
	ptw_team_boundary(); /* as openmp_teams.c does: the arrival's thunk is its own, in which nothing is accessed */
	ptw_team_boundary();
	here->enter = ptw_tsc();
	if (!ptw_tracing())
		return;
	here->barrier = object_of(here->team, PTW_TOOL_BARRIERS + here->count % PTW_SLOTS);
	struct ptw_event event = {PTW_BARRIER_ARRIVE, (uint64_t)here->barrier, 0, ptw_release(here->barrier), here->count};
	ptw_log(&event, caller, here->enter, ptw_tsc());
}

static void leave(struct member *here, const struct ptw_frame *caller)
{
	const void *barrier = here->barrier;
	here->barrier = NULL;
	if (!barrier) /* a region's end, which its members hear of late */
		return;
	ptw_team_acquire(PTW_BARRIER_WAIT, caller, here->enter, barrier, 0, here->count);
	meet_tasks(caller, here->enter, here->team);
}

static void sync_region(int kind, int scope, union carried *team, union carried *task, const void *code)
{
	struct ptw_frame caller = PTW_CALLER;
	(void)team, (void)task;
	if (!member())
		return;
	if (kind == SYNC_TASKWAIT || kind == SYNC_TASKGROUP) {
		if (scope == SCOPE_BEGIN)
			ptw_team_boundary();
		else
			meet_tasks(&caller, ptw_tsc(), member()->team);
	} else if (scope == SCOPE_BEGIN && is_end_of_region(kind, code)) {
		end_part(&caller);
	} else if (scope == SCOPE_BEGIN && is_barrier(kind)) {
		arrive(member(), &caller);
	} else if (scope == SCOPE_END && is_barrier(kind)) {
		leave(member(), &caller);
	}
}

/* The members go to the region's end from wherever they are, past its barriers: its maker's next regions have others. */
static void cancel(union carried *task, int flags, const void *code)
{
	(void)task, (void)code;
	if (flags & CANCEL_PARALLEL)
		self.cancelled++;
}

/* --- tasks --- */

static void task_create(union carried *maker, const void *frame, union carried *task, int flags, int depends, const void *code)
{
	struct ptw_frame caller = PTW_CALLER;
	(void)maker, (void)frame, (void)code;
	task->value = 0;
	if (!(flags & TASK_EXPLICIT) || !member())
		return;
	__atomic_store_n(has_tasks(), 1, __ATOMIC_RELEASE);
	task->value = member()->team | OF_TASK | (depends ? DEPENDS : 0);
	ptw_team_release(PTW_TASK, &caller, ptw_tool_object(PTW_TOOL_TASKS), 0, 0);
}

static void task_schedule(union carried *before, int status, union carried *next)
{
	struct ptw_frame caller = PTW_CALLER;
	uint64_t enter = ptw_tsc();
	if (before && before->value & OF_TASK && (status == STATUS_COMPLETE || status == STATUS_CANCEL))
		ptw_team_release(PTW_TASK_END, &caller, object_of(before->value, PTW_TOOL_TASKS_DONE), 0, 0);
	if (!next || (next->value & (OF_TASK | BEGUN)) != OF_TASK)
		return;
	next->value |= BEGUN;
	ptw_team_acquire(PTW_TASK_BEGIN, &caller, enter, object_of(next->value, PTW_TOOL_TASKS), 0, 0);
	if (next->value & DEPENDS)
		ptw_team_acquire(PTW_TASK_WAIT, &caller, enter, object_of(next->value, PTW_TOOL_TASKS_DONE), 0, 0);
}

/* --- who is told --- */

static int initialize(lookup *look, int device, union carried *ours)
{
	set_callback *set = (set_callback *)look("ompt_set_callback");
	(void)device, (void)ours;
	if (!set)
		return 0;
	set(ON_PARALLEL_BEGIN, (callback *)parallel_begin);
	set(ON_PARALLEL_END, (callback *)parallel_end);
	set(ON_TASK_CREATE, (callback *)task_create);
	set(ON_TASK_SCHEDULE, (callback *)task_schedule);
	set(ON_IMPLICIT_TASK, (callback *)implicit_task);
	set(ON_SYNC_REGION, (callback *)sync_region);
	set(ON_CANCEL, (callback *)cancel);
	__atomic_store_n(runtime(), ptw_next_object_at((uint64_t)look), __ATOMIC_RELEASE);
	return 1;
}

static void finalize(union carried *ours) { (void)ours; }

struct tool *ompt_start_tool(unsigned version, const char *name)
{
	static struct tool tool = {.initialize = initialize, .finalize = finalize};
	struct tool *(*next)(unsigned, const char *) = (struct tool * (*)(unsigned, const char *))dlsym(RTLD_NEXT, "ompt_start_tool");
	struct tool *others = next ? next(version, name) : NULL;
	const char *listed = getenv("OMP_TOOL_LIBRARIES");
	if (!others && !(listed && *listed))
		return ptw_tracing() ? &tool : NULL;
	ptw_notice(PTW_NOTICE_LIMIT, NULL, "the program has an OpenMP tool of its own: what this OpenMP orders is not known");
	return others;
}
