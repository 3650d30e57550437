/* SPDX-License-Identifier: MIT */
/*
 * User and group ids of the whole program; program.h says what is guaranteed.
 *
 * The thread that changes them does so first: when the kernel refuses, nothing has happened. Then it writes down what
 * it has now, and every other thread takes that over in a signal handler; the call returns when all have. Groups come
 * first and users last, as dropping the right to change the others must.
 */
#define _GNU_SOURCE
#include "control.h"
#include "program.h"
#include "real.h"
#include "touch.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>

static uint64_t seen; /* in this process: changes it has followed */
static __thread uint64_t seen_here __attribute__((tls_model("initial-exec"))); /* by a servant, which has its own */

static void take_over(void)
{
	const struct ptw_program *program = ptw_program_state;
	PTW_SYS(SYS_setgroups, program->groups, program->list, 0, 0, 0, 0);
	PTW_SYS(SYS_setresgid, program->group[0], program->group[1], program->group[2], 0, 0, 0);
	PTW_SYS(SYS_setresuid, program->user[0], program->user[1], program->user[2], 0, 0, 0);
}

/* The table does not change meanwhile: whoever changed it waits for us. */
void ptw_ids_serve(void)
{
	uint64_t changed = __atomic_load_n(&ptw_program_state->ids_changed, __ATOMIC_ACQUIRE);
	bool servant = changed && ptw_servant_is_one();
	uint64_t *mine = servant ? &seen_here : &seen;
	if (*mine == changed)
		return;
	take_over();
	*mine = changed;
	if (servant)
		return;
	if (!ptw_is_main()) /* the kernel forgets it with the ids */
		PTW_SYS(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
	__atomic_store_n(&ptw_slot()->ids_seen, changed, __ATOMIC_RELEASE);
}

void ptw_ids_follow(void)
{
	ptw_lock(&ptw_program_state->ids_lock);
	ptw_ids_serve();
	__atomic_store_n(&ptw_slot()->ids_seen, seen, __ATOMIC_RELEASE);
	ptw_unlock(&ptw_program_state->ids_lock);
}

static void await(const struct ptw_slot *slot, uint64_t changed)
{
	for (unsigned tries = 0; __atomic_load_n(&slot->ids_seen, __ATOMIC_ACQUIRE) != changed; tries++) {
		if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_RUNNING || ptw_slot_gone(slot))
			return;
		ptw_sleep_ns(tries < 100 ? 20000 : 1000000);
	}
}

static void have_all_follow(void)
{
	struct ptw_program *program = ptw_program_state;
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	long groups = PTW_SYS(SYS_getgroups, PTW_GROUPS, program->list, 0, 0, 0, 0);
	program->groups = groups > 0 ? (uint32_t)groups : 0;
	PTW_SYS(SYS_getresgid, &program->group[0], &program->group[1], &program->group[2], 0, 0, 0);
	PTW_SYS(SYS_getresuid, &program->user[0], &program->user[1], &program->user[2], 0, 0, 0);
	seen = program->ids_changed + 1;
	__atomic_store_n(&ptw_slot()->ids_seen, seen, __ATOMIC_RELEASE);
	__atomic_store_n(&program->ids_changed, seen, __ATOMIC_RELEASE);
	ptw_servants_call();
	for (uint32_t i = 0; i < high; i++)
		if (i != ptw_slot_index && __atomic_load_n(&ptw_shared->slot[i].state, __ATOMIC_ACQUIRE) != PTW_SLOT_FREE)
			ptw_control_request(&ptw_shared->slot[i], PTW_REQUEST_IDS);
	for (uint32_t i = 0; i < high; i++)
		if (i != ptw_slot_index)
			await(&ptw_shared->slot[i], seen);
	if (!ptw_is_main())
		PTW_SYS(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
}

long ptw_change_ids(long number, long a, long b, long c)
{
	if (!ptw_slot_runs())
		return PTW_SYS(number, a, b, c, 0, 0, 0);
	ptw_lock(&ptw_program_state->ids_lock);
	long result = PTW_SYS(number, a, b, c, 0, 0, 0);
	if (result == 0)
		have_all_follow();
	ptw_unlock(&ptw_program_state->ids_lock);
	return result;
}

static int change(long number, long a, long b, long c)
{
	long result = ptw_change_ids(number, a, b, c);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

/* -1 as the kernel takes it: leave it as it is. */
#define SAME (-1l)

PTW_EXPORT int setuid(uid_t user)
{
	return ptw_process_mode ? change(SYS_setuid, user, 0, 0) : GLIBC(setuid)(user);
}

PTW_EXPORT int setgid(gid_t group)
{
	return ptw_process_mode ? change(SYS_setgid, group, 0, 0) : GLIBC(setgid)(group);
}

PTW_EXPORT int seteuid(uid_t user)
{
	if (!ptw_process_mode || user == (uid_t)-1)
		return GLIBC(seteuid)(user);
	return change(SYS_setresuid, SAME, user, SAME);
}

PTW_EXPORT int setegid(gid_t group)
{
	if (!ptw_process_mode || group == (gid_t)-1)
		return GLIBC(setegid)(group);
	return change(SYS_setresgid, SAME, group, SAME);
}

PTW_EXPORT int setreuid(uid_t real, uid_t effective)
{
	return ptw_process_mode ? change(SYS_setreuid, real, effective, 0) : GLIBC(setreuid)(real, effective);
}

PTW_EXPORT int setregid(gid_t real, gid_t effective)
{
	return ptw_process_mode ? change(SYS_setregid, real, effective, 0) : GLIBC(setregid)(real, effective);
}

PTW_EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	return ptw_process_mode ? change(SYS_setresuid, real, effective, saved)
				: GLIBC(setresuid)(real, effective, saved);
}

PTW_EXPORT int setresgid(gid_t real, gid_t effective, gid_t saved)
{
	return ptw_process_mode ? change(SYS_setresgid, real, effective, saved)
				: GLIBC(setresgid)(real, effective, saved);
}

PTW_EXPORT int setgroups(size_t count, const gid_t *list)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		return GLIBC(setgroups)(count, list);
	if (ptw_tracking && count <= PTW_GROUPS)
		ptw_touch(list, count * sizeof *list, false, &caller);
	return change(SYS_setgroups, (long)count, (long)list, 0);
}

PTW_EXPORT int initgroups(const char *user, gid_t group)
{
	gid_t list[1024];
	int count = sizeof list / sizeof *list;
	if (!ptw_process_mode)
		return GLIBC(initgroups)(user, group);
	if (getgrouplist(user, group, list, &count) < 0)
		count = sizeof list / sizeof *list; /* as many as there is room for */
	return setgroups((size_t)count, list);
}
