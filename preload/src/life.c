/* SPDX-License-Identifier: MIT */
/*
 * The life of a thread; life.h says what is guaranteed.
 *
 * A thread that ends does so in glibc, which runs its destructors; in the last round of them ptw_thread_ended() notes
 * that it ended by itself, and afterwards its process exits. Joining waits for the process to be gone, because until
 * then it is on the stack that a join gives back. The result is kept in the slot: it is PTHREAD_CANCELED until the
 * thread returns or calls pthread_exit.
 */
#define _GNU_SOURCE
#include "life.h"

#include "control.h"
#include "dispositions.h"
#include "handlers.h"
#include "herald.h"
#include "instructions.h"
#include "pages.h"
#include "pending.h"
#include "places.h"
#include "process.h"
#include "program.h"
#include "real.h"
#include "spawn.h"
#include "units.h"
#include "view.h"
#include "wait.h"
#include "warden.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { LAST_MOMENT = 30 }; /* tries */

static uint32_t *life_word(struct ptw_slot *slot) { return (uint32_t *)&slot->life.__data.__lock; }

/* --- create --- */

static void reclaim(struct ptw_slot *slot)
{
	ptw_spawn_forget(slot);
	if (slot->stack_run)
		ptw_units_give(ptw_unit_of(slot->stack) - 1, (uint32_t)slot->stack_run);
	ptw_slot_free((uint32_t)(slot - ptw_shared->slot));
}

/* Detached threads leave their slots to whoever comes next. */
static void reclaim_detached(void)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 1; i < high; i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		uint32_t detached = 1;
		if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_ENDED || !ptw_slot_gone(slot))
			continue;
		if (__atomic_compare_exchange_n(&slot->detached, &detached, 2, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			reclaim(slot);
	}
}

/* Bytes of the program's need not be whole pages; what is open to the thread is. */
static void set_stack(struct ptw_slot *slot, uint64_t low, uint64_t size)
{
	slot->given = low;
	slot->given_size = size;
	slot->stack = low & ~(PTW_PAGE - 1);
	slot->stack_size = ((low + size + PTW_PAGE - 1) & ~(PTW_PAGE - 1)) - slot->stack;
}

static int place_stack(struct ptw_slot *slot, uint32_t index, const pthread_attr_t *attributes)
{
	uint64_t low;
	size_t size = 0;
	slot->guard = 0;
	if (ptw_stack_given(attributes, &low, &size)) {
		set_stack(slot, low, size);
		slot->told_size = size;
		return 0;
	}
	pthread_attr_getguardsize(attributes, &slot->guard);
	slot->told_size = size;
	size = (ptw_stack_size(size) + PTW_PAGE - 1) & ~(PTW_PAGE - 1);
	uint64_t area = PTW_REGION + index * PTW_STACK_AREA;
	if (size <= PTW_STACK_AREA - PTW_STACK_MARGIN) {
		set_stack(slot, area + PTW_STACK_AREA - size, size);
		return 0;
	}
	uint32_t count = (uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT), first = ptw_units_take(count + 1, false);
	if (first == UINT32_MAX)
		return EAGAIN;
	ptw_pages_limit(ptw_unit_address(first), PTW_UNIT, PROT_NONE); /* a guard */
	set_stack(slot, ptw_unit_address(first + 1), count * PTW_UNIT);
	slot->stack_run = count + 1;
	return 0;
}

static void take_attributes(struct ptw_slot *slot, const pthread_attr_t *attributes)
{
	int detach = 0, inherit = PTHREAD_INHERIT_SCHED;
	struct sched_param parameter;
	sigset_t mask;
	cpu_set_t cpus;
	slot->policy = -1;
	pthread_attr_getdetachstate(attributes, &detach);
	slot->detached = detach == PTHREAD_CREATE_DETACHED;
	pthread_attr_getinheritsched(attributes, &inherit);
	if (inherit == PTHREAD_EXPLICIT_SCHED) {
		slot->scheduled = PTW_SCHEDULE_WANTED;
		pthread_attr_getschedpolicy(attributes, &slot->policy);
		pthread_attr_getschedparam(attributes, &parameter);
		slot->priority = parameter.sched_priority;
	}
	if (pthread_attr_getsigmask_np(attributes, &mask) == 0)
		memcpy(&slot->mask, &mask, sizeof slot->mask);
	CPU_ZERO(&cpus);
	if (pthread_attr_getaffinity_np(attributes, sizeof cpus, &cpus) == 0) {
		cpu_set_t every;
		memset(&every, 0xff, sizeof every);
		slot->pinned = !CPU_EQUAL(&cpus, &every);
		slot->scheduled = slot->pinned ? PTW_SCHEDULE_WANTED : slot->scheduled;
		memcpy(slot->affinity, &cpus, sizeof slot->affinity);
	}
}

static int check_policy(const struct ptw_slot *slot)
{
	struct sched_param parameter = {slot->priority}, before;
	if (slot->policy < 0)
		return 0;
	if (slot->policy != SCHED_FIFO && slot->policy != SCHED_RR) { /* anybody may have these */
		int least = sched_get_priority_min(slot->policy), most = sched_get_priority_max(slot->policy);
		return least < 0 || slot->priority < least || slot->priority > most ? EINVAL : 0;
	}
	int policy = sched_getscheduler(0);
	sched_getparam(0, &before);
	long result = PTW_SYS(SYS_sched_setscheduler, 0, slot->policy, &parameter, 0, 0, 0);
	PTW_SYS(SYS_sched_setscheduler, 0, policy, &before, 0, 0, 0);
	return (int)-result;
}

static int check_affinity(const struct ptw_slot *slot)
{
	uint64_t before[sizeof slot->affinity / sizeof *slot->affinity];
	if (!slot->pinned || PTW_SYS(SYS_sched_getaffinity, 0, sizeof before, before, 0, 0, 0) < 0)
		return 0;
	long result = PTW_SYS(SYS_sched_setaffinity, 0, sizeof slot->affinity, slot->affinity, 0, 0, 0);
	PTW_SYS(SYS_sched_setaffinity, 0, sizeof before, before, 0, 0, 0);
	return (int)-result;
}

/* What glibc asks of the kernel before it lets the thread run: may it have its scheduling? */
static int check_schedule(const struct ptw_slot *slot)
{
	int error = check_policy(slot);
	return error ? error : check_affinity(slot);
}

/* The main process's own threads, which block all signals. With the first one the C library goes through its streams. */
static int start_helpers(void)
{
	uint64_t mask = PTW_ALL_BUT_FAULTS, before;
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask, 0, 0);
	int error = ptw_warden_start();
	if (error == 0)
		error = ptw_herald_start();
	ptw_control_init(); /* again: with the first thread glibc took the signal for itself */
	ptw_restore_signals(&before);
	return error;
}

/* Before the thread's routine begins, and before others can name the thread: by whoever of it and its creator is first. */
static void apply_schedule(struct ptw_slot *slot)
{
	uint32_t wanted = PTW_SCHEDULE_WANTED;
	if (!__atomic_compare_exchange_n(&slot->scheduled, &wanted, PTW_SCHEDULE_BEGUN, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		while (__atomic_load_n(&slot->scheduled, __ATOMIC_ACQUIRE) == PTW_SCHEDULE_BEGUN)
			PTW_SYS(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		return;
	}
	struct sched_param parameter = {slot->priority};
	if (slot->policy >= 0)
		PTW_SYS(SYS_sched_setscheduler, slot->pid, slot->policy, &parameter, 0, 0, 0);
	if (slot->pinned)
		PTW_SYS(SYS_sched_setaffinity, slot->pid, sizeof slot->affinity, slot->affinity, 0, 0, 0);
	__atomic_store_n(&slot->scheduled, PTW_SCHEDULE_DONE, __ATOMIC_RELEASE);
}

static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
	uint64_t mask = PTW_ALL_BUT_FAULTS, before;
	reclaim_detached();
	int index = ptw_slot_claim();
	if (index < 0)
		return EAGAIN;
	struct ptw_slot *slot = &ptw_shared->slot[index];
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask, 0, 0);
	slot->mask = before;
	slot->routine = routine;
	slot->argument = argument;
	slot->creator = ptw_slot_index;
	take_attributes(slot, attributes);
	int error = check_schedule(slot);
	if (error == 0)
		error = place_stack(slot, (uint32_t)index, attributes);
	if (error == 0) {
		__atomic_fetch_add(&ptw_shared->alive, 1, __ATOMIC_ACQ_REL);
		error = ptw_spawn(slot);
		if (error)
			__atomic_fetch_sub(&ptw_shared->alive, 1, __ATOMIC_ACQ_REL);
	}
	if (error) {
		reclaim(slot);
	} else {
		apply_schedule(slot);
		*thread = slot->handle;
	}
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before, 0, 0);
	if (error == 0)
		ptw_warden_notice();
	return error == ENOMEM ? EAGAIN : error;
}

int ptw_life_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
	pthread_attr_t defaults;
	ptw_pages_boundary();
	int error = ptw_is_main() ? start_helpers() : 0;
	if (error || attributes)
		return error ? error : create(thread, attributes, routine, argument);
	if (pthread_getattr_default_np(&defaults) != 0)
		return EAGAIN;
	error = create(thread, &defaults, routine, argument);
	pthread_attr_destroy(&defaults);
	return error;
}

/* --- the new thread --- */

/* The main process is our parent; when it dies, so do we. A helper that cloned us counts as the parent until it is
 * gone, and must not take us along. */
static void bind_to_main(const struct ptw_slot *slot)
{
	if (slot->helper_tid && slot->creator == ptw_shared->main_slot)
		for (int tries = 0; PTW_SYS(SYS_tgkill, ptw_shared->main_pid, slot->helper_tid, 0, 0, 0, 0) == 0; tries++) {
			__builtin_ia32_pause();
			if (tries > 100)
				PTW_SYS(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		}
	PTW_SYS(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
	if ((uint32_t)PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0) != ptw_shared->main_pid)
		PTW_SYS(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

void *ptw_thread_begin(struct ptw_slot *slot)
{
	ptw_slot_index = (uint32_t)(slot - ptw_shared->slot);
	slot->result = PTHREAD_CANCELED;
	if (slot->helper_tid)
		PTW_SYS(SYS_set_robust_list, slot->robust, slot->robust_size, 0, 0, 0, 0);
	ptw_slot_live(slot);
	bind_to_main(slot); /* before anything that waits: whoever it waits for may end the program */
	ptw_places_begin();
	ptw_process_resume();
	ptw_thread_greet_early(slot->routine, slot->argument);
	ptw_pages_begin(slot);
	apply_schedule(slot);
	ptw_rlimits_follow();
	ptw_ids_follow();
	ptw_thread_watch_end();
	ptw_thread_greeted();
	const uint64_t ours = 1ull << (PTW_CONTROL_SIGNAL - 1); /* blocked in who makes a thread while it serves */
	uint64_t mask = slot->mask & ~(ptw_unblockable() | ours);
	slot->blocked = mask;
	__atomic_store_n(&slot->state, PTW_SLOT_RUNNING, __ATOMIC_SEQ_CST);
	ptw_dispositions_apply(); /* what changed since we were cloned */
	ptw_mask_publish(mask);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	if (__atomic_load_n(&slot->requests, __ATOMIC_ACQUIRE)) /* somebody was quicker than our pid */
		ptw_control_request(slot, 0);
	slot->result = slot->routine(slot->argument);
	return slot->result;
}

static void __attribute__((noreturn)) main_ended(struct ptw_slot *slot, uint64_t mask)
{
	uint32_t alive;
	__atomic_fetch_or(life_word(slot), FUTEX_OWNER_DIED, __ATOMIC_RELEASE);
	ptw_shared_wake(life_word(slot), INT32_MAX);
	while ((alive = __atomic_load_n(&ptw_shared->alive, __ATOMIC_ACQUIRE)) > 1)
		ptw_shared_wait(&ptw_shared->alive, alive, NULL);
	__atomic_store_n(&slot->state, PTW_SLOT_RUNNING, __ATOMIC_SEQ_CST); /* the last one calls exit: it has signals again */
	__atomic_store_n(&slot->blocked, mask, __ATOMIC_SEQ_CST);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	exit(0);
}

/* What it has not taken yet is another's. Returns what it blocked before. */
static uint64_t take_no_more_signals(struct ptw_slot *slot)
{
	const uint64_t all = PTW_ALL_BUT_FAULTS, before = slot->blocked;
	slot->waiting = 0;
	__atomic_store_n(&slot->blocked, all, __ATOMIC_SEQ_CST);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, sizeof all, 0, 0);
	ptw_pending_return();
	return before;
}

void ptw_thread_ended(void)
{
	if (!ptw_process_mode)
		return;
	struct ptw_slot *slot = ptw_slot();
	ptw_pages_end();
	uint64_t mask = take_no_more_signals(slot);
	if (!ptw_is_main())
		ptw_places_end();
	__atomic_store_n(&slot->state, PTW_SLOT_ENDED, __ATOMIC_RELEASE);
	if (ptw_is_main())
		main_ended(slot, mask);
	ptw_usage_end();
	__atomic_fetch_sub(&ptw_shared->alive, 1, __ATOMIC_ACQ_REL);
	ptw_shared_wake(&ptw_shared->alive, 1);
	/* who joins is on its way while the C library and the kernel finish */
	if (__atomic_load_n(life_word(slot), __ATOMIC_ACQUIRE) & FUTEX_WAITERS)
		ptw_shared_wake(life_word(slot), INT32_MAX);
}

void ptw_life_exit(void *result)
{
	ptw_slot()->result = result;
	GLIBC(pthread_exit)(result);
	__builtin_unreachable();
}

void ptw_life_exit11(int result)
{
	ptw_slot()->result = (void *)(intptr_t)result;
	GLIBC(thrd_exit)(result);
	__builtin_unreachable();
}

/* --- join, detach --- */

/* What is left of its life takes some microseconds. */
static void await_last_moment(struct ptw_slot *slot)
{
	for (int tries = 0; tries < LAST_MOMENT && !ptw_slot_gone(slot); tries++) {
		for (int i = 0; i < 20; i++)
			__builtin_ia32_pause();
		PTW_SYS(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
}

/* Wait until the thread's process is gone. 0, ETIMEDOUT. */
static int await_end(struct ptw_slot *slot, clockid_t clock, const struct timespec *until)
{
	for (;;) {
		if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PTW_SLOT_ENDED)
			await_last_moment(slot);
		uint32_t word = __atomic_load_n(life_word(slot), __ATOMIC_ACQUIRE);
		if (word & FUTEX_OWNER_DIED) {
			while (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_ENDED)
				ptw_sleep_ns(10000000); /* not by itself: the warden ends the program */
			return 0;
		}
		if (word == 0) { /* not begun: it tells those who said that they wait */
			__atomic_store_n(&slot->awaited, 1, __ATOMIC_SEQ_CST);
		} else if (!(word & FUTEX_WAITERS)) {
			__atomic_compare_exchange_n(life_word(slot), &word, word | FUTEX_WAITERS, false,
						    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
			continue;
		}
		if (ptw_wait_cancellable(life_word(slot), word, clock, until) == -ETIMEDOUT)
			return ETIMEDOUT;
	}
}

struct joining {
	struct ptw_slot *self, *other;
};

static void give_up_joining(void *data)
{
	struct joining *joining = data;
	joining->self->joining = 0;
	__atomic_store_n(&joining->other->joined, 0, __ATOMIC_RELEASE);
}

static int check_join(const struct ptw_slot *slot, int index)
{
	if (index < 0)
		return ESRCH;
	if (__atomic_load_n(&slot->detached, __ATOMIC_ACQUIRE))
		return EINVAL;
	if (index != (int)ptw_slot_index && (slot->joining != ptw_slot_index + 1 || slot->cancelled))
		return 0;
	pthread_testcancel(); /* who is cancelled does not wait for ever either */
	return EDEADLK;
}

static int join(pthread_t thread, void **ret, bool wait, clockid_t clock, const struct timespec *until)
{
	int index = ptw_slot_of(thread), error;
	struct ptw_slot *slot = &ptw_shared->slot[index < 0 ? 0 : index];
	if (index >= 0 && !wait && index != (int)ptw_slot_index && !ptw_slot_gone(slot))
		return EBUSY;
	if ((error = check_join(slot, index)) != 0)
		return error;
	if (until && (until->tv_nsec < 0 || until->tv_nsec >= 1000000000))
		return EINVAL;
	if (__atomic_exchange_n(&slot->joined, 1, __ATOMIC_ACQ_REL))
		return EINVAL;
	struct joining joining = {ptw_slot(), slot};
	if (ptw_private) /* the other may wait for what this thread wrote */
		ptw_view_exchange();
	joining.self->joining = (uint32_t)index + 1;
	pthread_cleanup_push(give_up_joining, &joining);
	error = await_end(slot, clock, until);
	pthread_cleanup_pop(0);
	joining.self->joining = 0;
	if (error) {
		give_up_joining(&joining);
		return error;
	}
	ptw_pages_boundary();
	void *result = slot->result;
	if (index != (int)ptw_shared->main_slot)
		reclaim(slot);
	if (ret)
		*ret = result;
	return 0;
}

int ptw_life_join(pthread_t thread, void **ret) { return join(thread, ret, true, CLOCK_REALTIME, NULL); }

int ptw_life_tryjoin(pthread_t thread, void **ret) { return join(thread, ret, false, CLOCK_REALTIME, NULL); }

int ptw_life_timedjoin(pthread_t thread, void **ret, const struct timespec *until)
{
	return join(thread, ret, true, CLOCK_REALTIME, until);
}

int ptw_life_clockjoin(pthread_t thread, void **ret, clockid_t clock, const struct timespec *until)
{
	if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
		return EINVAL;
	return join(thread, ret, true, clock, until);
}

int ptw_life_detach(pthread_t thread)
{
	int index = ptw_slot_of(thread);
	if (index < 0)
		return ESRCH;
	uint32_t joinable = 0;
	if (!__atomic_compare_exchange_n(&ptw_shared->slot[index].detached, &joinable, 1, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return EINVAL;
	reclaim_detached();
	return 0;
}

/* --- the same in C11's words --- */

static int to_c11(int error)
{
	return error == 0 ? thrd_success : error == ENOMEM ? thrd_nomem : error == EBUSY ? thrd_busy
		: error == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int ptw_life_create11(thrd_t *thread, thrd_start_t routine, void *argument)
{
	/* the result's upper half means nothing, and is not looked at */
	return to_c11(ptw_life_create(thread, NULL, (void *(*)(void *))(void (*)(void))routine, argument));
}

int ptw_life_join11(thrd_t thread, int *ret)
{
	void *result = NULL;
	int error = ptw_life_join(thread, &result);
	if (error == 0 && ret)
		*ret = (int)(intptr_t)result;
	return to_c11(error);
}

int ptw_life_detach11(thrd_t thread) { return to_c11(ptw_life_detach(thread)); }
