/* SPDX-License-Identifier: MIT */
/* Requests between processes; control.h says what is guaranteed. */
#define _GNU_SOURCE
#include "control.h"

#include "dispositions.h"
#include "exec.h"
#include "handlers.h"
#include "instructions.h"
#include "nap.h"
#include "pages.h"
#include "pending.h"
#include "program.h"
#include "real.h"
#include "revoke.h"
#include "view.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>

__thread uint64_t ptw_control_runs __attribute__((tls_model("initial-exec")));

#define RESTORER PTW_RESTORER

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

/*
 * glibc decides whether this thread is at a cancellation point; if so, it does not come back. In a call that can be
 * cancelled its type is asynchronous, and a thread that cancels itself then has only half of what another's cancelling
 * notes down: the first cancellation point in a cleanup handler would wait for the rest for ever. So it is cancelled
 * while its type is deferred, and ends when it is put back.
 */
static void cancel_here(void)
{
	int type;
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	GLIBC(pthread_cancel)(pthread_self());
	pthread_setcanceltype(type, NULL);
}

/* Whether it is to be cancelled, too, which is left to the caller. */
static bool serve_requests(void)
{
	if (ptw_servant_is_one()) { /* no thread of the program, and asked for nothing else */
		ptw_ids_serve();
		return false;
	}
	uint32_t requests = __atomic_exchange_n(&ptw_slot()->requests, 0, __ATOMIC_ACQ_REL);
	if (requests & PTW_REQUEST_DISPOSITIONS)
		ptw_dispositions_apply();
	if (requests & PTW_REQUEST_PAGES)
		ptw_revoke_catch_up();
	if (requests & PTW_REQUEST_IDS)
		ptw_ids_serve();
	if (requests & PTW_REQUEST_NAME)
		ptw_name_serve();
	if (requests & PTW_REQUEST_VIEW)
		ptw_view_serve();
	if (requests == 0 && ptw_private)
		ptw_view_exchange(); /* its clock ticked */
	if (requests & PTW_REQUEST_EXEC)
		ptw_exec_serve();
	if (requests & PTW_REQUEST_SIGNALS)
		ptw_pending_return();
	if (requests & PTW_REQUEST_CANCEL)
		ptw_slot()->napping = 0; /* it may not come back to where it began */
	return requests & PTW_REQUEST_CANCEL;
}

void ptw_control_serve(void)
{
	if (serve_requests())
		cancel_here();
}

static void cancel_there(void)
{
	int before = errno;
	cancel_here();
	errno = before;
}

static void serve(int signal, siginfo_t *info, void *context)
{
	int before = errno;
	ptw_control_runs++;
	bool cancelled = serve_requests();
	errno = before;
	if (cancelled) /* it ends on its own stack, and with what it has blocked */
		ptw_handler_call(cancel_there, signal, info, context, (uint64_t)__builtin_frame_address(0) + 8);
}

/* On the stack for faults: of the stack that the thread is on, what lies below may be closed. */
int ptw_control_init(void)
{
	return ptw_install(PTW_CONTROL_SIGNAL, (uint64_t)serve, SA_SIGINFO | SA_RESTART | SA_ONSTACK,
			   PTW_ALL_BUT_FAULTS & ~ptw_unblockable());
}

int ptw_control_request(struct ptw_slot *slot, uint32_t request)
{
	const uint32_t patient = PTW_REQUEST_DISPOSITIONS | PTW_REQUEST_PAGES | PTW_REQUEST_VIEW;
	__atomic_fetch_or(&slot->requests, request, __ATOMIC_SEQ_CST);
	if (slot->pid == 0 || ptw_slot_gone(slot))
		return ESRCH;
	if (!(request & ~patient) && request && __atomic_load_n(&slot->napping, __ATOMIC_SEQ_CST))
		return 0;
	return (int)-PTW_SYS(SYS_tgkill, slot->pid, slot->pid, PTW_CONTROL_SIGNAL, 0, 0, 0);
}

/* A thread that ended but was not joined yet can be named, and nothing happens to it. */
int ptw_control_cancel(pthread_t thread)
{
	int index = ptw_slot_of(thread);
	ptw_pages_boundary();
	if (index < 0)
		return ESRCH;
	if (index == (int)ptw_slot_index)
		return GLIBC(pthread_cancel)(thread);
	if (!__atomic_exchange_n(&ptw_shared->slot[index].cancelled, 1, __ATOMIC_ACQ_REL)) /* once is enough */
		ptw_control_request(&ptw_shared->slot[index], PTW_REQUEST_CANCEL);
	return 0;
}

int ptw_control_kill(pthread_t thread, int signal)
{
	int index = ptw_slot_of(thread);
	ptw_pages_boundary(); /* a handler reads what was written before */
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
