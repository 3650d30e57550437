/* SPDX-License-Identifier: MIT */
/* The program's signal handlers; handlers.h says what is guaranteed. */
#define _GNU_SOURCE
#include "handlers.h"

#include "aside.h"
#include "dispositions.h"
#include "fault.h"
#include "fork.h"
#include "instructions.h"
#include "pending.h"
#include "probe_user.h"
#include "real.h"
#include "touch.h"
#include "vforks.h"
#include "view.h"

#include <errno.h>
#include <string.h>

#define AUTODISARM (int)(1u << 31) /* SS_AUTODISARM: for programs that leave handlers by other ways; nothing to do */

enum { RED_ZONE = 128, OPENED = 4 * 4096, FRAME_TO_CONTEXT = 8 };

__thread uint64_t ptw_handler_runs __attribute__((tls_model("initial-exec")));

/* The program's alternate stack. */
static __thread stack_t alternate __attribute__((tls_model("initial-exec")));
static __thread bool alternate_set __attribute__((tls_model("initial-exec")));

void ptw_mask_publish(uint64_t mask)
{
	struct ptw_slot *slot = ptw_slot();
	__atomic_store_n(&slot->blocked, mask, __ATOMIC_SEQ_CST);
	if (__builtin_expect(ptw_pending_kept() & ~mask, 0))
		ptw_pending_raise(~mask);
}

/* --- who sent it --- */

/* The terminal and kill(-group) signal each process of a group. */
static bool for_the_group(const siginfo_t *info)
{
	const uint64_t of_terminal = PTW_BIT(SIGINT) | PTW_BIT(SIGQUIT) | PTW_BIT(SIGHUP) | PTW_BIT(SIGTSTP) |
				     PTW_BIT(SIGWINCH) | PTW_BIT(SIGCONT) | PTW_BIT(SIGTTIN) | PTW_BIT(SIGTTOU);
	if (ptw_is_main())
		return false;
	if (info->si_code == SI_USER) /* by kill; the kernel says that the thread did it itself, e.g. for SIGPIPE */
		return info->si_pid != ptw_getpid();
	return info->si_code == SI_KERNEL && (of_terminal & PTW_BIT(info->si_signo));
}

bool ptw_signal_arrived(siginfo_t *info)
{
	if (info->si_code == PTW_HANDED_OVER)
		ptw_pending_redeem(info);
	else if (for_the_group(info))
		return false;
	bool has_sender = info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE;
	if (has_sender && info->si_pid != (pid_t)ptw_shared->main_pid && ptw_slot_had_pid(info->si_pid))
		info->si_pid = (pid_t)ptw_shared->main_pid;
	return true;
}

/* --- which stack --- */

struct call {
	void (*handler)(int, siginfo_t *, void *);
	int signal;
	siginfo_t *info;
	ucontext_t *context;
	stack_t nested; /* for the kernel, while the handler runs */
};

static bool on_alternate(uint64_t stack)
{
	return alternate_set && stack - (uint64_t)alternate.ss_sp < alternate.ss_size;
}

static long call_moved(void *data)
{
	const struct call *call = data;
	PTW_SYS(SYS_sigaltstack, &call->nested, 0, 0, 0, 0, 0);
	call->handler(call->signal, call->info, call->context);
	return 0;
}

/* We are on the kernel's alternate stack, which is ours; the handler is to run at `stack`. The frame we return by must
 * stay as it is: what comes meanwhile uses another part. Coming back, the kernel restores what it was told before. */
static void call_on(struct call *call, uint64_t stack)
{
	struct ptw_frame caller = PTW_CALLER;
	call->nested = ptw_fault_stack_beside((uint64_t)__builtin_frame_address(0),
					      on_alternate((uint64_t)call->context->uc_mcontext.gregs[REG_RSP]));
	if (ptw_tracking)
		ptw_touch((void *)(stack - OPENED), OPENED, true, &caller);
	ptw_call_on(call_moved, call, stack & ~63ull);
}

/* The end of the program's alternate stack, where the action asks for it; 0 for the stack that was interrupted. */
static uint64_t alternate_for(const struct ptw_action *action, uint64_t interrupted)
{
	bool asked = action->flags & SA_ONSTACK && alternate_set;
	return asked && !on_alternate(interrupted) ? (uint64_t)alternate.ss_sp + alternate.ss_size : 0;
}

static void call_handler(const struct ptw_action *action, int signal, siginfo_t *info, ucontext_t *context)
{
	struct call call = {(void (*)(int, siginfo_t *, void *))action->handler, signal, info, context, {0}};
	uint64_t top = alternate_for(action, (uint64_t)context->uc_mcontext.gregs[REG_RSP]);
	if (top && ptw_fault_stack_has((uint64_t)__builtin_frame_address(0)))
		call_on(&call, top);
	else /* a fault may be for want of stack */
		call.handler(signal, info, context);
}

/* --- what a signal does --- */

static void by_default(int signal, const siginfo_t *info)
{
	const uint64_t faults = PTW_BIT(SIGSEGV) | PTW_BIT(SIGBUS) | PTW_BIT(SIGILL) | PTW_BIT(SIGFPE);
	uint64_t bit = PTW_BIT(signal);
	ptw_install(signal, 0, 0, 0);
	if (info->si_code > 0 && faults & bit)
		return; /* the instruction will fault again */
	PTW_SYS(SYS_tgkill, ptw_getpid(), ptw_gettid(), signal, 0, 0, 0);
	if (signal != SIGSEGV)
		PTW_SYS(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, 0, sizeof bit, 0, 0);
}

/* What is blocked while a handler runs. */
static uint64_t inside(const struct ptw_action *action, int signal, const ucontext_t *context)
{
	const uint64_t *outside = (const uint64_t *)&context->uc_sigmask;
	return *outside | action->mask | (action->flags & SA_NODEFER ? 0 : PTW_BIT(signal));
}

void ptw_handler_run(const struct ptw_action *action, int signal, siginfo_t *info, ucontext_t *context)
{
	const uint64_t *outside = (const uint64_t *)&context->uc_sigmask;
	if (action->handler == (uint64_t)SIG_IGN && (signal != SIGSEGV || info->si_code <= 0))
		return;
	if (action->handler == (uint64_t)SIG_DFL || action->handler == (uint64_t)SIG_IGN) {
		by_default(signal, info);
		return;
	}
	__atomic_store_n(&ptw_slot()->blocked, inside(action, signal, context), __ATOMIC_SEQ_CST);
	ptw_handler_runs++;
	ptw_slot()->napping = 0; /* what it naps in ends now */
	if (__builtin_expect(ptw_slot()->requests != 0, 0))
		ptw_control_serve();
	if (ptw_private) /* what was written before the signal was sent */
		ptw_view_exchange();
	call_handler(action, signal, info, context);
	if (ptw_private)
		ptw_view_exchange();
	ptw_mask_publish(*outside);
}

void ptw_handler_run_open(const struct ptw_action *action, int signal, siginfo_t *info, ucontext_t *context)
{
	uint64_t mask = inside(action, signal, context) & ~ptw_unblockable();
	if (ptw_has_handler(action))
		PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	ptw_handler_run(action, signal, info, context);
}

/* --- moving to the program's stack --- */

/* What a handler that moves is to do, and its frame's size: read before another can begin. */
static __thread struct moving {
	struct ptw_action action;
	void (*function)(void); /* instead of it */
	uint64_t size;
} moving __attribute__((tls_model("initial-exec")));

static void call_open(void (*function)(void), const ucontext_t *context)
{
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &context->uc_sigmask, 0, sizeof(uint64_t), 0, 0);
	function();
}

/* Returns to where the kernel would have us return: sigreturn, in which it reads the frame, and cannot fault. */
static void arrived(int signal, siginfo_t *info, void *context)
{
	const struct ptw_frame caller = PTW_CALLER;
	const struct moving this = moving;
	const uint64_t all = PTW_ALL_BUT_FAULTS & ~ptw_unblockable();
	if (this.function)
		call_open(this.function, context);
	else
		ptw_handler_run_open(&this.action, signal, info, context);
	if (!ptw_stack_is_tracked())
		return;
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, sizeof all, 0, 0); /* nobody takes it away in between */
	ptw_touch((char *)context - FRAME_TO_CONTEXT, this.size, false, &caller);
}

static __attribute__((noreturn)) void go_on_at(uint64_t frame, int signal, siginfo_t *info, ucontext_t *context)
{
	__asm__ volatile("movq %[frame], %%rsp\n"
			 "	jmp *%[there]\n"
			 :
			 : [frame] "r"(frame), [there] "a"(arrived), "D"(signal), "S"(info), "d"(context)
			 : "memory");
	__builtin_unreachable();
}

/*
 * The kernel's frame, [frame, end) on our stack, as if it had been made on the program's below `stack`: sigreturn takes it
 * from wherever it is. So ours is free again, however many handlers interrupt each other, and if they leave by longjmp.
 */
static __attribute__((noreturn)) void move(struct moving what, int signal, siginfo_t *info, ucontext_t *context,
					   uint64_t frame, uint64_t stack)
{
	const uint64_t line = 64; /* the registers' part keeps its alignment */
	uint64_t end = (uint64_t)context->uc_stack.ss_sp + context->uc_stack.ss_size, size = end - frame;
	uint64_t to = ((stack - size) & ~(line - 1)) - line + frame % line, by = to - frame;
	memcpy((void *)to, (const void *)frame, size);
	context = (ucontext_t *)((uint64_t)context + by);
	if ((uint64_t)context->uc_mcontext.fpregs - frame < size)
		context->uc_mcontext.fpregs = (fpregset_t)((uint64_t)context->uc_mcontext.fpregs + by);
	moving = what;
	moving.size = size;
	go_on_at(to, signal, (siginfo_t *)((uint64_t)info + by), context);
}

/* Where a frame is to lie that is on our stack; 0 where it is. */
static uint64_t below(const ucontext_t *context)
{
	uint64_t interrupted = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
	return ptw_fault_stack_has(interrupted) ? 0 : interrupted - RED_ZONE;
}

/* The same of a handler's. */
static uint64_t stack_for(const struct ptw_action *action, const ucontext_t *context)
{
	uint64_t stack = ptw_has_handler(action) ? below(context) : 0;
	uint64_t top = stack ? alternate_for(action, (uint64_t)context->uc_mcontext.gregs[REG_RSP]) : 0;
	return top ? top : stack;
}

void ptw_handler_call(void (*function)(void), int signal, siginfo_t *info, ucontext_t *context, uint64_t frame)
{
	uint64_t stack = below(context);
	if (ptw_fault_stack_has(frame) && stack)
		move((struct moving){.function = function}, signal, info, context, frame, stack);
	call_open(function, context);
}

void ptw_on_signal(int signal, siginfo_t *info, void *context)
{
	if (ptw_probe_fault(signal, context) || !ptw_signal_arrived(info))
		return;
	struct ptw_action action = ptw_dispositions_take(signal);
	uint64_t frame = (uint64_t)__builtin_frame_address(0) + 8, stack = stack_for(&action, context);
	if (!ptw_fault_stack_has(frame))
		ptw_handler_run(&action, signal, info, context);
	else if (stack)
		move((struct moving){.action = action}, signal, info, context, frame, stack);
	else
		ptw_handler_run_open(&action, signal, info, context);
}

/* --- the program's alternate stack --- */

PTW_EXPORT int sigaltstack(const stack_t *restrict stack, stack_t *restrict old)
{
	if (!ptw_process_mode)
		return GLIBC(sigaltstack)(stack, old);
	bool inside = on_alternate((uint64_t)__builtin_frame_address(0));
	stack_t before = alternate_set ? alternate : (stack_t){.ss_flags = SS_DISABLE};
	before.ss_flags |= inside ? SS_ONSTACK : 0;
	if (stack && ptw_is_kept()) { /* in a child of vfork, for its exec: not the parent's */
		stack_t now = *stack;
		bool off = now.ss_flags & SS_DISABLE, known = !(now.ss_flags & ~(SS_DISABLE | SS_ONSTACK | AUTODISARM));
		if (inside || !known || (!off && now.ss_size < (size_t)MINSIGSTKSZ)) {
			errno = inside ? EPERM : known ? ENOMEM : EINVAL;
			return -1;
		}
		now.ss_flags = 0;
		alternate = now;
		alternate_set = !off;
	}
	if (old)
		*old = before;
	return 0;
}
