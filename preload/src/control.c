/* SPDX-License-Identifier: MIT */
/* Requests between processes; control.h says what is guaranteed. */
#define _GNU_SOURCE
#include "control.h"

#include "dispositions.h"
#include "exec.h"
#include "real.h"

#include <errno.h>
#include <signal.h>

#define RESTORER 0x04000000ull

void ptw_return_from_signal(void) PTW_HIDDEN;

__asm__(".pushsection .text.ptw_return_from_signal,\"ax\",@progbits\n"
	"	nop\n" /* unwinders look one byte before */
	".hidden ptw_return_from_signal\n"
	".globl ptw_return_from_signal\n"
	".type ptw_return_from_signal, @function\n"
	"ptw_return_from_signal:\n"
	"	movq $15, %rax\n" /* the bytes by which unwinders know a signal frame */
	"	syscall\n"
	".size ptw_return_from_signal, .-ptw_return_from_signal\n"
	".popsection\n");

int ptw_install(int signal, uint64_t handler, uint64_t flags, uint64_t mask)
{
	struct ptw_action action = {handler, flags | RESTORER, (uint64_t)ptw_return_from_signal, mask};
	return (int)PTW_SYS(SYS_rt_sigaction, signal, &action, 0, sizeof action.mask, 0, 0);
}

/* glibc decides whether this thread is at a cancellation point; if so, it does not come back. */
static void serve(int signal)
{
	(void)signal;
	uint32_t requests = __atomic_exchange_n(&ptw_slot()->requests, 0, __ATOMIC_ACQ_REL);
	if (requests & PTW_REQUEST_DISPOSITIONS)
		ptw_dispositions_apply();
	if (requests & PTW_REQUEST_EXEC)
		ptw_exec_serve();
	if (requests & PTW_REQUEST_CANCEL)
		GLIBC(pthread_cancel)(pthread_self());
}

int ptw_control_init(void) { return ptw_install(PTW_CONTROL_SIGNAL, (uint64_t)serve, SA_RESTART, 0); }

int ptw_control_request(struct ptw_slot *slot, uint32_t request)
{
	__atomic_fetch_or(&slot->requests, request, __ATOMIC_ACQ_REL);
	if (slot->pid == 0 || ptw_slot_gone(slot))
		return ESRCH;
	return (int)-PTW_SYS(SYS_tgkill, slot->pid, slot->pid, PTW_CONTROL_SIGNAL, 0, 0, 0);
}

/* A thread that ended but was not joined yet can be named, and nothing happens to it. */
int ptw_control_cancel(pthread_t thread)
{
	int index = ptw_slot_of(thread);
	if (index < 0)
		return ESRCH;
	if (index == (int)ptw_slot_index)
		return GLIBC(pthread_cancel)(thread);
	ptw_control_request(&ptw_shared->slot[index], PTW_REQUEST_CANCEL);
	return 0;
}

int ptw_control_kill(pthread_t thread, int signal)
{
	int index = ptw_slot_of(thread);
	if (signal < 0 || signal > 64 || signal == 32 || signal == 33)
		return EINVAL;
	if (index < 0)
		return ESRCH;
	const struct ptw_slot *slot = &ptw_shared->slot[index];
	if (ptw_slot_gone(slot))
		return 0;
	return (int)-PTW_SYS(SYS_tgkill, slot->pid, slot->pid, signal, 0, 0, 0);
}

PTW_EXPORT int pthread_cancel(pthread_t thread) { return REAL(pthread_cancel)(thread); }

PTW_EXPORT int pthread_kill(pthread_t thread, int signal) { return REAL(pthread_kill)(thread, signal); }
