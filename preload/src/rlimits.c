/* SPDX-License-Identifier: MIT */
/*
 * Resource limits of the whole program; program.h says what is guaranteed.
 *
 * Limits of memory are kept here: the address space that the library has mapped, and which every fork maps anew, is
 * far beyond any. What is allocated and mapped for the program may not be more than they say. So is the greatest size
 * of a file that may be asked for later: a fork makes a file of the whole memory's size. The kernel is told when the
 * program execs.
 */
#define _GNU_SOURCE
#include "layout.h"
#include "program.h"
#include "touch.h"

#include <errno.h>

static long set(pid_t process, int resource, const struct rlimit64 *value, struct rlimit64 *old)
{
	return PTW_SYS(SYS_prlimit64, process, resource, value, old, 0, 0);
}

/* What the program asks of the kernel, as it asks it: a function of its own, by which merging knows such calls. */
__attribute__((noinline)) static long asked_limit(pid_t process, int resource, const struct rlimit64 *value,
						  struct rlimit64 *old)
{
	return set(process, resource, value, old);
}

static bool of_memory(int resource) { return resource == RLIMIT_AS || resource == RLIMIT_DATA; }
static bool kept(int resource) { return of_memory(resource) || resource == RLIMIT_FSIZE; }

/* Tell the kernel about a process of the program. */
static void tell(pid_t process, int resource, const struct rlimit64 *value)
{
	struct rlimit64 now = *value;
	if (of_memory(resource))
		return;
	if (kept(resource)) {
		set(process, resource, NULL, &now);
		now.rlim_cur = value->rlim_cur < now.rlim_max ? value->rlim_cur : now.rlim_max;
	}
	set(process, resource, &now, NULL);
}

/* The kernel's rules for who may set what. */
static long allowed(const struct rlimit64 *before, const struct rlimit64 *value)
{
	if (value->rlim_cur > value->rlim_max)
		return -EINVAL;
	return value->rlim_max > before->rlim_max && PTW_SYS(SYS_geteuid, 0, 0, 0, 0, 0, 0) != 0 ? -EPERM : 0;
}

/* What the program has of a limit that is kept here. */
static long look(int resource, struct rlimit64 *ret)
{
	const struct ptw_program *program = ptw_program_state;
	if (!__atomic_load_n(&program->limit_changed[resource], __ATOMIC_ACQUIRE))
		return set(0, resource, NULL, ret);
	*ret = program->limit[resource];
	return 0;
}

static long keep(int resource, const struct rlimit64 *value)
{
	struct ptw_program *program = ptw_program_state;
	struct rlimit64 before;
	long error = look(resource, &before);
	if (!error)
		error = allowed(&before, value);
	if (error)
		return error;
	program->limit[resource] = *value;
	__atomic_store_n(&program->limit_changed[resource], 1, __ATOMIC_RELEASE);
	uint64_t most = RLIM_INFINITY;
	for (int i = 0; i < PTW_LIMITS; i++)
		if (of_memory(i) && program->limit_changed[i] && program->limit[i].rlim_cur < most)
			most = program->limit[i].rlim_cur;
	__atomic_store_n(&program->most_units, most / PTW_UNIT < PTW_UNITS ? (uint32_t)(most / PTW_UNIT) + 1 : 0,
			 __ATOMIC_RELEASE);
	tell(0, resource, value);
	return 0;
}

/* Is it one of ours? */
static bool concerns(pid_t process)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	if (process == 0)
		return true;
	for (uint32_t i = 0; i < high; i++)
		if (ptw_shared->slot[i].pid == (uint32_t)process && ptw_shared->slot[i].state != PTW_SLOT_FREE)
			return true;
	return false;
}

/* A thread whose process has no number yet follows by itself when it has. */
static void tell_others(int resource, const struct rlimit64 *value)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < high; i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		if (i != ptw_slot_index && slot->pid && (state == PTW_SLOT_RUNNING || state == PTW_SLOT_STARTING) &&
		    !ptw_slot_gone(slot))
			tell((pid_t)slot->pid, resource, value);
	}
}

long ptw_rlimit(pid_t process, int resource, const struct rlimit64 *value, struct rlimit64 *old)
{
	struct ptw_program *program = ptw_program_state;
	bool here = ptw_process_mode && ptw_slot_runs() && resource >= 0 && resource < PTW_LIMITS && concerns(process);
	if (!here || (!value && !kept(resource)))
		return asked_limit(process, resource, value, old);
	ptw_lock(&program->limits_lock);
	struct rlimit64 before;
	long result = kept(resource) ? look(resource, &before) : asked_limit(0, resource, value, &before);
	if (result == 0 && value && kept(resource))
		result = keep(resource, value);
	if (result == 0 && old)
		*old = before;
	if (result == 0 && value) {
		program->limit[resource] = *value;
		program->limit_changed[resource] = 1;
		tell_others(resource, value);
	}
	ptw_unlock(&program->limits_lock);
	return result;
}

void ptw_rlimits_follow(void)
{
	struct ptw_program *program = ptw_program_state;
	ptw_lock(&program->limits_lock);
	for (int resource = 0; resource < PTW_LIMITS; resource++)
		if (program->limit_changed[resource])
			tell(0, resource, &program->limit[resource]);
	ptw_unlock(&program->limits_lock);
}

void ptw_rlimits_exec(struct rlimit64 before[PTW_LIMITS])
{
	const struct ptw_program *program = ptw_program_state;
	for (int resource = 0; resource < PTW_LIMITS; resource++) {
		if (!kept(resource) || !program->limit_changed[resource])
			continue;
		const struct rlimit64 *limit = &program->limit[resource];
		set(0, resource, NULL, &before[resource]);
		if (limit->rlim_cur <= before[resource].rlim_cur) /* else a child has set a lower one */
			set(0, resource, limit, NULL);
	}
}

void ptw_rlimits_exec_failed(const struct rlimit64 before[PTW_LIMITS])
{
	for (int resource = 0; resource < PTW_LIMITS; resource++)
		if (kept(resource) && ptw_program_state->limit_changed[resource])
			set(0, resource, &before[resource], NULL);
}

static int limit(pid_t process, int resource, const struct rlimit64 *value, struct rlimit64 *old,
		 const struct ptw_frame *caller)
{
	if (ptw_tracking) {
		ptw_touch(value, sizeof *value, false, caller);
		ptw_touch(old, sizeof *old, true, caller);
	}
	long result = ptw_rlimit(process, resource, value, old);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

/* struct rlimit is struct rlimit64 here. */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "x86-64");

PTW_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *value)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(0, (int)resource, value, NULL, &caller);
}

PTW_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *value)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(0, (int)resource, (const struct rlimit64 *)(const void *)value, NULL, &caller);
}

PTW_EXPORT int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *ret)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(0, (int)resource, NULL, ret, &caller);
}

PTW_EXPORT int getrlimit(__rlimit_resource_t resource, struct rlimit *ret)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(0, (int)resource, NULL, (struct rlimit64 *)(void *)ret, &caller);
}

PTW_EXPORT int prlimit64(pid_t process, enum __rlimit_resource resource, const struct rlimit64 *value,
			 struct rlimit64 *old)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(process, (int)resource, value, old, &caller);
}

PTW_EXPORT int prlimit(pid_t process, enum __rlimit_resource resource, const struct rlimit *value, struct rlimit *old)
{
	struct ptw_frame caller = PTW_CALLER;
	return limit(process, (int)resource, (const struct rlimit64 *)(const void *)value,
		     (struct rlimit64 *)(void *)old, &caller);
}
