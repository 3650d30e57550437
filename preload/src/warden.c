/* SPDX-License-Identifier: MIT */
/* The warden; warden.h says what it does. */
#define _GNU_SOURCE
#include "warden.h"

#include "control.h"
#include "handshake.h"
#include "program.h"
#include "slots.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static uint32_t started;

#define children ((uint32_t *)PTW_META_CHILDREN) /* futex: threads ever made */

/* After one that ended the next is not waited for at once: where threads come and go, each call to another processor
 * costs them more than their creation's own work, and that of memory that was seen there, too. */
enum { REST_NS = 3000000 };

static const char *name_of(int signal)
{
	return signal == SIGKILL ? "SIGKILL (out of memory?)" : "a signal";
}

static void __attribute__((noreturn)) die_by(int signal)
{
	struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } action = {0};
	uint64_t mask = ~(1ull << (signal - 1));
	PTW_SYS(SYS_rt_sigaction, signal, &action, 0, 8, 0, 0);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8, 0, 0);
	PTW_SYS(SYS_tgkill, ptw_getpid(), ptw_gettid(), signal, 0, 0, 0);
	PTW_SYS(SYS_exit_group, 128 + signal, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

/* The slot may be another's by now, or become it while we look: then the thread had ended by itself. */
static bool ended_by_itself(uint32_t pid)
{
	for (uint32_t i = 1; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		if (__atomic_load_n(&slot->pid, __ATOMIC_ACQUIRE) != pid)
			continue;
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
		return state == PTW_SLOT_ENDED || state == PTW_SLOT_FREE ||
		       __atomic_load_n(&slot->pid, __ATOMIC_ACQUIRE) != pid;
	}
	return true;
}

static void buried(const siginfo_t *info, bool ended)
{
	char line[100];
	if (ended || __atomic_load_n(&ptw_shared->exec_slot, __ATOMIC_ACQUIRE))
		return; /* an exec ends the others */
	if (info->si_code == CLD_EXITED) {
		PTW_SYS(SYS_exit_group, info->si_status, 0, 0, 0, 0, 0);
		__builtin_unreachable();
	}
	if (info->si_status == SIGKILL) {
		snprintf(line, sizeof line, "thread %d was ended by %s: the program ends", info->si_pid,
			 name_of(info->si_status));
		ptw_say(line);
	}
	die_by(info->si_status);
}

/* Reap one that is dead, if there is: 1, 0 none, or -ECHILD: none that lives either. */
static long bury(int flags)
{
	struct rusage usage;
	siginfo_t info = {0}, again;
	/* WNOWAIT first: while it is a zombie its number is not used again, so its slot can be told */
	long result = PTW_SYS(SYS_waitid, P_ALL, 0, &info, WEXITED | WNOWAIT | __WCLONE | flags, &usage, 0);
	if (result < 0 || info.si_pid == 0)
		return result;
	bool ended = ended_by_itself((uint32_t)info.si_pid);
	ptw_usage_buried(&usage);
	PTW_SYS(SYS_waitid, P_PID, info.si_pid, &again, WEXITED | WNOHANG | __WCLONE, 0, 0);
	buried(&info, ended);
	return 1;
}

static void *watch(void *argument)
{
	const uint64_t mask = ~(1ull << (PTW_CONTROL_SIGNAL - 1));
	(void)argument;
	ptw_restore_signals(&mask); /* it has to be called away from its wait */
	ptw_servant_begin(PTW_WARDEN);
	for (;;) {
		uint32_t seen = __atomic_load_n(children, __ATOMIC_ACQUIRE);
		long result = bury(0);
		if (result == -ECHILD)
			ptw_shared_wait(children, seen, NULL);
		if (result <= 0)
			continue;
		ptw_sleep_ns(REST_NS);
		while (bury(WNOHANG) > 0)
			;
	}
	return NULL;
}

int ptw_warden_start(void)
{
	if (started) /* not written to again: every process made would have the page copied */
		return 0;
	int error = ptw_servant_start(watch, NULL);
	started = error == 0;
	return error;
}

void ptw_warden_notice(void)
{
	__atomic_fetch_add(children, 1, __ATOMIC_RELEASE);
	ptw_shared_wake(children, 1);
}

void ptw_warden_forget(void) { started = 0; }
