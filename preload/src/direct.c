/* SPDX-License-Identifier: MIT */
/*
 * Cloning a process inside pthread_create; direct.h says what it gives.
 *
 * What must hold:
 *  - A dispatched call comes as SIGSYS, which must not be blocked: glibc blocks all signals by a call that is dispatched,
 *    too, and that is done to the mask the handler returns to, without SIGSYS. After the clone no call is handed to us
 *    any more, so the call by which glibc sets the mask back is the kernel's again.
 *  - A SIGSYS that somebody sends meanwhile is kept, and sent again to where it came when it is blocked as before. The
 *    handler blocks the signal, so the new process begins with it blocked.
 *  - While one to this thread is pending the kernel drops the one of a dispatched call, and the call is not made: it is
 *    made again then. The other way round it drops the one that is sent: of those that are handed over from other threads
 *    the table of pending.h knows. One that the program itself sends to this very thread just then is lost.
 *  - The new process must not inherit the creator's restartable sequences area (rseq): the kernel would write to it, in
 *    shared memory, for both. So the creator has none while it clones; the new process registers its own as any thread.
 *  - A handler begins with the floating-point mode of a new program: the creator's is set before the clone inherits it.
 *  - The creator's stack is shared, and the frame it is called on may be gone when the new process runs: that goes on
 *    with nothing but registers. glibc's clone3 has the routine and its argument in registers, too.
 *  - Dispatching is a thread's own, and not inherited.
 */
#define _GNU_SOURCE
#include "direct.h"

#include "control.h"
#include "engine.h"
#include "handlers.h"
#include "instructions.h"
#include "pending.h"
#include "real.h"
#include "view.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/rseq.h>
#include <linux/sched.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>

enum {
	DISPATCH = 59, /* PR_SET_SYSCALL_USER_DISPATCH */
	DISPATCH_OFF = 0,
	DISPATCH_ON = 1,
	DISPATCHED = 2, /* si_code: SYS_USER_DISPATCH */
	SIGNATURE = 0x53053053,
	KEPT = 2, /* of one signal a thread and a process can have one pending each */
};

#define SIGSYS_BIT (1ull << (SIGSYS - 1))

extern PTW_HIDDEN const char __ehdr_start[], etext[]; /* of this library: its calls are not handed over */

static bool usable;
static ptrdiff_t rseq_offset;
static uint32_t rseq_size;

/* One thread of a process creates at a time: the only one that is the program's. */
static PTW_CHANGING struct ptw_slot *making;
static PTW_CHANGING uint8_t gate; /* 1: calls are handed over */
static PTW_CHANGING struct ptw_action before; /* of SIGSYS, in the kernel */
static PTW_CHANGING siginfo_t kept[KEPT];
static PTW_CHANGING uint32_t kept_count;
static PTW_CHANGING uint64_t blocked; /* what the creator blocks, as others know it */
static PTW_CHANGING uint64_t answered; /* where the last call that was handed over goes on */

static long rseq(int flags)
{
	return PTW_SYS(SYS_rseq, (char *)pthread_self() + rseq_offset, rseq_size, flags, SIGNATURE, 0, 0);
}

/* Give the area back and register it again, with the size that glibc did it with. */
static bool find_rseq(void)
{
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
	const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	if (!offset || !size || *size == 0)
		return false;
	const uint32_t sizes[] = {sizeof(struct rseq), *size, (*size + 31) & ~31u}; /* it has said different things */
	rseq_offset = *offset;
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		rseq_size = sizes[i];
		if (rseq(RSEQ_FLAG_UNREGISTER) == 0)
			return rseq(0) == 0;
	}
	return false;
}

static long dispatch(bool on)
{
	if (on)
		return PTW_SYS(SYS_prctl, DISPATCH, DISPATCH_ON, __ehdr_start, etext - __ehdr_start, &gate, 0);
	if (ptw_instructions_on) {
		ptw_instructions_begin();
		return 0;
	}
	return PTW_SYS(SYS_prctl, DISPATCH, DISPATCH_OFF, 0, 0, 0, 0);
}

void ptw_direct_init(void)
{
	if (ptw_under_engine() || PTW_SYS(SYS_clone3, 0, 0, 0, 0, 0, 0) != -EINVAL || dispatch(true) != 0)
		return;
	usable = dispatch(false) == 0 && find_rseq();
}

/* --- calls that were handed to us --- */

static long change_mask(ucontext_t *context, int how, const uint64_t *set, uint64_t *ret)
{
	uint64_t *mask = (uint64_t *)&context->uc_sigmask;
	if (ret)
		*ret = *mask | SIGSYS_BIT; /* as it was, and as the thread is to begin */
	if (set)
		*mask = how == SIG_BLOCK ? *mask | *set : how == SIG_UNBLOCK ? *mask & ~*set : *set;
	*mask &= ~(SIGSYS_BIT | ptw_unblockable());
	return 0;
}

static void set_floating_point(const struct _libc_fpstate *state)
{
	if (!state)
		return;
	__asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(state->mxcsr), "m"(state->cwd));
}

static long clone_and_go_on(struct clone_args *arguments, const greg_t *registers)
{
	long result;
	register uint64_t function __asm__("rdx") = (uint64_t)registers[REG_RDX];
	register uint64_t argument __asm__("r8") = (uint64_t)registers[REG_R8];
	register uint64_t there __asm__("r9") = (uint64_t)registers[REG_RIP];
	__asm__ volatile("syscall\n"
			 "	test %%rax, %%rax\n"
			 "	jnz 1f\n"
			 "	jmp *%[there]\n"
			 "1:\n"
			 : "=a"(result)
			 : "a"((long)SYS_clone3), "D"(arguments), "S"(sizeof *arguments), "r"(function), "r"(argument),
			   [there] "r"(there)
			 : "rcx", "r11", "memory");
	return result;
}

static long clone_process(const ucontext_t *context, const struct clone_args *asked)
{
	struct ptw_slot *slot = making;
	struct clone_args arguments = {
		.flags = CLONE_FILES | CLONE_FS | CLONE_IO | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID,
		.parent_tid = asked->parent_tid, /* in the control block, before it runs */
		.stack = asked->stack,
		.stack_size = asked->stack_size,
		.tls = asked->tls,
	};
	if (slot->creator != ptw_shared->main_slot)
		arguments.flags |= CLONE_PARENT; /* all are children of the main process */
	slot->handle = asked->tls;
	slot->open_from = (asked->stack + asked->stack_size) & ~(PTW_PAGE - 1);
	slot->open_to = slot->stack + slot->stack_size;
	ptw_view_exchange(); /* what glibc had the program's allocator write: see spawn.c */
	set_floating_point(context->uc_mcontext.fpregs);
	return clone_and_go_on(&arguments, context->uc_mcontext.gregs);
}

/* Was a call of somebody else's made just before `address`, of which we were not told? The registers are as before it. */
static bool missed_call(uint64_t address)
{
	const uint8_t *call = (const uint8_t *)address - 2;
	return gate && address != answered && address - (uint64_t)__ehdr_start >= (uint64_t)(etext - __ehdr_start) &&
	       address % PTW_PAGE >= 2 && call[0] == 0x0f && call[1] == 0x05;
}

static void on_call(int signal, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	greg_t *registers = context->uc_mcontext.gregs;
	(void)signal;
	if (info->si_code != DISPATCHED) { /* somebody sent it */
		if (kept_count < KEPT && info->si_code != PTW_HANDED_OVER)
			kept[kept_count++] = *info;
		if (missed_call((uint64_t)registers[REG_RIP]))
			registers[REG_RIP] -= 2;
		return;
	}
	answered = (uint64_t)registers[REG_RIP];
	switch (info->si_syscall) {
	case SYS_rt_sigprocmask:
		registers[REG_RAX] = change_mask(context, (int)registers[REG_RDI],
						 (const uint64_t *)registers[REG_RSI], (uint64_t *)registers[REG_RDX]);
		break;
	case SYS_clone3:
		registers[REG_RAX] = clone_process(context, (const struct clone_args *)registers[REG_RDI]);
		gate = registers[REG_RAX] == -ENOSYS;
		break;
	case SYS_clone: /* clone3 is not allowed (any more) */
		usable = false;
		registers[REG_RAX] = -EAGAIN;
		break;
	default:
		registers[REG_RAX] = ptw_syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI],
						 registers[REG_RDX], registers[REG_R10], registers[REG_R8],
						 registers[REG_R9]);
	}
}

/* --- around them --- */

static void begin(struct ptw_slot *slot)
{
	const uint64_t open = SIGSYS_BIT;
	const struct ptw_action action = {(uint64_t)on_call, SA_SIGINFO | PTW_RESTORER,
					  (uint64_t)ptw_return_from_signal, 0};
	making = slot;
	answered = 0;
	blocked = ptw_slot()->blocked;
	__atomic_store_n(&ptw_slot()->blocked, blocked | SIGSYS_BIT, __ATOMIC_SEQ_CST); /* nobody is to hand us any */
	PTW_SYS(SYS_rt_sigaction, SIGSYS, &action, &before, sizeof action.mask, 0, 0);
	PTW_SYS(SYS_rt_sigprocmask, SIG_UNBLOCK, &open, 0, sizeof open, 0, 0);
	gate = 1;
}

/* SIGSYS is blocked again. */
static void end(void)
{
	gate = 0;
	making = NULL;
	kept_count = 0;
	PTW_SYS(SYS_rt_sigaction, SIGSYS, &before, 0, sizeof before.mask, 0, 0);
}

static void send_again(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		PTW_SYS(SYS_rt_tgsigqueueinfo, ptw_getpid(), ptw_gettid(), SIGSYS, &kept[i], 0, 0);
}

int ptw_direct_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*routine)(void *), struct ptw_slot *slot)
{
	const uint64_t closed = SIGSYS_BIT;
	if (!usable || rseq(RSEQ_FLAG_UNREGISTER) != 0)
		return ENOSYS;
	begin(slot);
	int error = dispatch(true) == 0 ? GLIBC(pthread_create)(ret, attributes, routine, slot) : ENOSYS;
	dispatch(false);
	if (error) {
		PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &closed, 0, sizeof closed, 0, 0);
		slot->handle = 0; /* glibc took it back */
	}
	uint32_t sent = kept_count;
	end();
	send_again(sent);
	if (__atomic_load_n(&ptw_slot()->handed, __ATOMIC_SEQ_CST) & SIGSYS_BIT)
		ptw_pending_return();
	ptw_mask_publish(blocked);
	rseq(0);
	return usable ? error : ENOSYS;
}

void ptw_direct_begun(struct ptw_slot *slot)
{
	end(); /* what was sent to the creator stays its */
	PTW_SYS(SYS_get_robust_list, 0, &slot->robust, &slot->robust_size, 0, 0, 0);
}
