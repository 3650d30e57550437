/* SPDX-License-Identifier: MIT */
/* Signal actions of the whole program; dispositions.h says what is guaranteed. */
#define _GNU_SOURCE
#include "dispositions.h"

#include "handlers.h"
#include "instructions.h"
#include "options.h"
#include "pending.h"
#include "probe_user.h"
#include "real.h"
#include "vforks.h"
#include "watch_hit.h"

#include <errno.h>
#include <string.h>

#define table ptw_disposition_table
#define DEFAULT ((uint64_t)SIG_DFL)
#define IGNORED ((uint64_t)SIG_IGN)

static const uint64_t harmless = PTW_BIT(SIGCHLD) | PTW_BIT(SIGCONT) | PTW_BIT(SIGURG) | PTW_BIT(SIGWINCH);
static const uint64_t stopping = PTW_BIT(SIGSTOP) | PTW_BIT(SIGTSTP) | PTW_BIT(SIGTTIN) | PTW_BIT(SIGTTOU);

/* What this process's kernel was told last. */
static uint32_t applied[65];

/* Only remembered: the kernel's is always ours. */
static bool remembered(int signal)
{
	return signal == SIGSEGV || (signal == SIGSYS && ptw_instructions_on) || (signal == SIGTRAP && ptw_watching);
}

/* SIGKILL and SIGSTOP are the kernel's, 32 and 33 the C library's, SIGSEGV ours. */
static bool ours(int signal)
{
	return signal >= 1 && signal <= 64 && signal != SIGKILL && signal != SIGSTOP && signal != 32 && signal != 33 &&
	       !remembered(signal);
}

static bool fatal_by_default(int signal) { return !((harmless | stopping) & PTW_BIT(signal)); }

/* --- the table --- */

struct ptw_action ptw_dispositions_get(int signal)
{
	for (;;) {
		uint32_t before = __atomic_load_n(&table->generation[signal], __ATOMIC_ACQUIRE);
		struct ptw_action action = table->action[signal];
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(&table->generation[signal], __ATOMIC_RELAXED) == before)
			return action;
		__builtin_ia32_pause();
	}
}

/* The lock is held. */
static void write_action(int signal, const struct ptw_action *action)
{
	__atomic_fetch_add(&table->generation[signal], 1, __ATOMIC_ACQ_REL);
	table->action[signal] = *action;
	__atomic_fetch_add(&table->generation[signal], 1, __ATOMIC_ACQ_REL);
}

bool ptw_dispositions_ignored(int signal)
{
	uint64_t handler = ptw_dispositions_get(signal).handler;
	return handler == IGNORED || (handler == DEFAULT && (harmless & PTW_BIT(signal)));
}

/* --- the kernel's view --- */

/*
 * A handler begins on our stack, with everything blocked, and moves to the program's (handlers.c): below where a thread
 * is, its stack may be closed, if it lies in tracked memory, as stacks of coroutines do.
 */
static struct ptw_action with_handler(uint64_t flags, uint64_t mask)
{
	if (ptw_options()->access != PTW_ACCESS_OFF)
		flags |= SA_ONSTACK;
	if (flags & SA_ONSTACK)
		mask = PTW_ALL_BUT_FAULTS;
	return (struct ptw_action){(uint64_t)ptw_on_signal, flags | SA_SIGINFO, 0, mask & ~ptw_unblockable()};
}

static struct ptw_action kernel_action(int signal, const struct ptw_action *wanted)
{
	const uint64_t kept = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART | SA_NODEFER | SA_ONSTACK;
	if (wanted->handler == IGNORED)
		return (struct ptw_action){IGNORED, wanted->flags & kept, 0, 0};
	if (ptw_has_handler(wanted))
		return with_handler(wanted->flags & kept, wanted->mask);
	if (table->armed && fatal_by_default(signal))
		return with_handler(0, ~0ull);
	return (struct ptw_action){DEFAULT, wanted->flags & kept, 0, 0};
}

static void tell_kernel(int signal)
{
	applied[signal] = __atomic_load_n(&table->generation[signal], __ATOMIC_ACQUIRE);
	struct ptw_action wanted = ptw_dispositions_get(signal), action = kernel_action(signal, &wanted);
	ptw_install(signal, action.handler, action.flags, action.mask);
}

/* With the flag that the C library adds, which whoever asks for the action sees. */
static struct ptw_action action_of(const struct sigaction *action)
{
	struct ptw_action ret = {(uint64_t)action->sa_handler, (uint64_t)(unsigned)action->sa_flags | PTW_RESTORER, 0, 0};
	memcpy(&ret.mask, &action->sa_mask, sizeof ret.mask);
	return ret;
}

static struct sigaction sigaction_of(struct ptw_action action)
{
	struct sigaction ret;
	memset(&ret, 0, sizeof ret);
	ret.sa_handler = (sighandler_t)action.handler;
	ret.sa_flags = (int)action.flags;
	memcpy(&ret.sa_mask, &action.mask, sizeof action.mask);
	return ret;
}

void ptw_dispositions_init(void)
{
	for (int signal = 1; signal <= 64; signal++) {
		struct ptw_action action;
		if ((!ours(signal) && !remembered(signal)) ||
		    PTW_SYS(SYS_rt_sigaction, signal, 0, &action, sizeof action.mask, 0, 0) != 0)
			continue;
		if (signal == SIGTRAP && ptw_watching)
			action = action_of(ptw_watch_programs());
		table->action[signal] = action;
		if (ours(signal) && ptw_has_handler(&action))
			tell_kernel(signal);
	}
}

void ptw_dispositions_arm(void)
{
	table->armed = 1;
	for (int signal = 1; signal <= 64; signal++)
		if (ours(signal) && table->action[signal].handler == DEFAULT && fatal_by_default(signal))
			tell_kernel(signal);
}

void ptw_dispositions_apply(void)
{
	for (int signal = 1; signal <= 64; signal++)
		if (ours(signal) && applied[signal] != __atomic_load_n(&table->generation[signal], __ATOMIC_ACQUIRE))
			tell_kernel(signal);
}

static void ask_others(uint32_t request)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		if (i != ptw_slot_index && (state == PTW_SLOT_RUNNING || state == PTW_SLOT_STARTING))
			ptw_control_request(slot, request);
	}
}

/* --- changing an action --- */

/* The new action, if any; the one before is returned. */
static struct ptw_action exchange(int signal, const struct ptw_action *action)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_lock(&table->lock);
	struct ptw_action before = table->action[signal];
	if (action)
		write_action(signal, action);
	ptw_unlock(&table->lock);
	if (action && ours(signal)) {
		struct ptw_action then = kernel_action(signal, &before), now = kernel_action(signal, action);
		tell_kernel(signal);
		bool dropped = then.handler == IGNORED || then.handler == DEFAULT; /* the kernel would lose it */
		if (memcmp(&then, &now, sizeof now) != 0)
			ask_others(PTW_REQUEST_DISPOSITIONS | (dropped && ptw_has_handler(action) ? PTW_REQUEST_NOW : 0));
		if (ptw_dispositions_ignored(signal))
			ptw_pending_flush(signal);
	}
	ptw_restore_signals(&mask);
	return before;
}

/* In a child of vfork: the kernel's alone is its own. It has ours where there are any, and those are not to be had. */
static int exchange_apart(int signal, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction before;
	if (GLIBC(sigaction)(signal, remembered(signal) ? NULL : action, &before) != 0)
		return -1;
	if (old)
		*old = remembered(signal) || before.sa_sigaction == ptw_on_signal ? sigaction_of(ptw_dispositions_get(signal)) : before;
	return 0;
}

struct ptw_action ptw_dispositions_take(int signal)
{
	const struct ptw_action none = {0};
	struct ptw_action action = ptw_dispositions_get(signal);
	return action.flags & SA_RESETHAND ? exchange(signal, &none) : action;
}

PTW_EXPORT int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	if (!ptw_process_mode && (ptw_probe_sigaction(signal, action, old) || ptw_watch_sigaction(signal, action, old)))
		return 0;
	if (!ptw_process_mode || (!ours(signal) && !remembered(signal))) {
		struct sigaction copy;
		if (action && ptw_watching) { /* handlers do not block our SIGTRAP */
			copy = *action;
			sigdelset(&copy.sa_mask, SIGTRAP);
			action = &copy;
		}
		return GLIBC(sigaction)(signal, action, old);
	}
	if (ptw_is_apart())
		return exchange_apart(signal, action, old);
	struct ptw_action now;
	if (action)
		now = action_of(action);
	struct ptw_action before = exchange(signal, action ? &now : NULL);
	if (old)
		*old = sigaction_of(before);
	return 0;
}

/* --- older ways to say it --- */

static sighandler_t change(int number, sighandler_t handler, int flags)
{
	struct sigaction action = {.sa_flags = flags}, old;
	action.sa_handler = handler;
	if (!(flags & SA_NODEFER))
		sigaddset(&action.sa_mask, number);
	if (handler == SIG_ERR || sigaction(number, &action, &old) != 0) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return old.sa_handler;
}

PTW_EXPORT sighandler_t signal(int number, sighandler_t handler)
{
	if (ptw_process_mode || ptw_probe_sigaction(number, NULL, NULL) || ptw_watch_sigaction(number, NULL, NULL))
		return change(number, handler, SA_RESTART);
	return GLIBC(signal)(number, handler);
}

PTW_EXPORT sighandler_t ssignal(int number, sighandler_t handler) { return signal(number, handler); }

PTW_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) { return signal(number, handler); }

PTW_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	if (!ptw_process_mode)
		return GLIBC(__sysv_signal)(number, handler);
	return change(number, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

PTW_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) { return __sysv_signal(number, handler); }

PTW_EXPORT int sigignore(int number)
{
	struct sigaction action = {0};
	action.sa_handler = SIG_IGN;
	return sigaction(number, &action, NULL);
}

PTW_EXPORT int siginterrupt(int number, int interrupt)
{
	struct sigaction action;
	if (sigaction(number, NULL, &action) != 0)
		return -1;
	action.sa_flags = interrupt ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
	return sigaction(number, &action, NULL);
}
