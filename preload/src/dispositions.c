/* SPDX-License-Identifier: MIT */
/* Signal actions of the whole program; dispositions.h says what is guaranteed. */
#define _GNU_SOURCE
#include "dispositions.h"

#include "real.h"

#include <errno.h>
#include <string.h>

static const uint64_t fault_bit = 1ull << (SIGSEGV - 1);

void ptw_dispositions_init(void)
{
	PTW_SYS(SYS_rt_sigaction, SIGSEGV, 0, ptw_fault_action(), 8, 0, 0);
}

void ptw_dispositions_apply(void)
{
	for (int signal = 1; signal <= 64; signal++) {
		struct ptw_action action;
		if (!__atomic_load_n(&ptw_disposition_table->changed[signal], __ATOMIC_ACQUIRE) || signal == SIGSEGV)
			continue;
		action = ptw_disposition_table->action[signal];
		PTW_SYS(SYS_rt_sigaction, signal, &action, 0, sizeof action.mask, 0, 0);
	}
}

/* This process's action for `signal` changed: the others follow. */
static void publish(int signal)
{
	struct ptw_dispositions *table = ptw_disposition_table;
	struct ptw_action action;
	if (PTW_SYS(SYS_rt_sigaction, signal, 0, &action, sizeof action.mask, 0, 0) != 0)
		return;
	if (action.mask & fault_bit) {
		action.mask &= ~fault_bit;
		PTW_SYS(SYS_rt_sigaction, signal, &action, 0, sizeof action.mask, 0, 0);
	}
	ptw_lock(&table->lock);
	table->action[signal] = action;
	__atomic_store_n(&table->changed[signal], 1, __ATOMIC_RELEASE);
	ptw_unlock(&table->lock);
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		if (i != ptw_slot_index && (state == PTW_SLOT_RUNNING || state == PTW_SLOT_STARTING))
			ptw_control_request(slot, PTW_REQUEST_DISPOSITIONS);
	}
}

/* sigaction for SIGSEGV: remembered, not done. */
static int remember(const struct sigaction *action, struct sigaction *old)
{
	struct ptw_action *mine = ptw_fault_action(), before = *mine;
	if (action) {
		*mine = (struct ptw_action){(uint64_t)action->sa_handler, (uint64_t)(unsigned)action->sa_flags, 0, 0};
		memcpy(&mine->mask, &action->sa_mask, sizeof mine->mask);
	}
	if (old) {
		memset(old, 0, sizeof *old);
		old->sa_handler = (sighandler_t)before.handler;
		old->sa_flags = (int)before.flags & ~0x04000000;
		memcpy(&old->sa_mask, &before.mask, sizeof before.mask);
	}
	return 0;
}

PTW_EXPORT int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	struct sigaction before;
	if (!ptw_process_mode)
		return GLIBC(sigaction)(signal, action, old);
	if (signal == SIGSEGV)
		return remember(action, old);
	struct sigaction copy;
	if (action)
		copy = *action;
	int result = GLIBC(sigaction)(signal, action ? &copy : NULL, old ? &before : NULL);
	if (result == 0 && old)
		*old = before;
	if (result == 0 && action)
		publish(signal);
	return result;
}

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
	return ptw_process_mode ? change(number, handler, SA_RESTART) : GLIBC(signal)(number, handler);
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

/* --- masks --- */

static const sigset_t *without_fault(const sigset_t *set, sigset_t *copy)
{
	if (!set)
		return NULL;
	*copy = *set;
	if (ptw_process_mode)
		sigdelset(copy, SIGSEGV);
	return copy;
}

PTW_EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	sigset_t copy, before;
	int result = GLIBC(sigprocmask)(how, how == SIG_UNBLOCK ? set : without_fault(set, &copy), old ? &before : NULL);
	if (result == 0 && old)
		*old = before;
	return result;
}

PTW_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy, before;
	int result = GLIBC(pthread_sigmask)(how, how == SIG_UNBLOCK ? set : without_fault(set, &copy),
					    old ? &before : NULL);
	if (result == 0 && old)
		*old = before;
	return result;
}

PTW_EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t copy;
	return GLIBC(sigsuspend)(without_fault(set, &copy));
}

/* --- alternate stacks --- */

static __thread stack_t alternate __attribute__((tls_model("initial-exec")));
static __thread bool alternate_set __attribute__((tls_model("initial-exec")));

PTW_EXPORT int sigaltstack(const stack_t *restrict stack, stack_t *restrict old)
{
	if (!ptw_process_mode)
		return GLIBC(sigaltstack)(stack, old);
	if (old) {
		if (alternate_set)
			*old = alternate;
		else
			*old = (stack_t){.ss_flags = SS_DISABLE};
	}
	if (!stack)
		return 0;
	if (!(stack->ss_flags & SS_DISABLE) && stack->ss_size < (size_t)MINSIGSTKSZ) {
		errno = ENOMEM;
		return -1;
	}
	alternate = *stack;
	alternate_set = !(stack->ss_flags & SS_DISABLE);
	return 0;
}
