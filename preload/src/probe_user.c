/* SPDX-License-Identifier: MIT */
/* The user's handlers; probe_user.h says what is guaranteed. */
#define _GNU_SOURCE
#include "probe_user.h"

#include "notice.h"
#include "probe.h"
#include "real.h"
#include "slots.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CAUGHT = 4, DIRECTION_FLAG = 0x400, SAVED = 40 /* bytes pushed below the frame pointer */ };

static const int caught[CAUGHT] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

/* Where the stack was before the handler was called; 0: none is at work. Read by the assembly below. */
PTW_HIDDEN __thread uint64_t ptw_probe_guard __attribute__((tls_model("initial-exec")));

void ptw_probe_recover(void) PTW_HIDDEN;

__asm__(".pushsection .text.ptw_probe_guarded,\"ax\",@progbits\n"
	".hidden ptw_probe_guarded\n"
	".globl ptw_probe_guarded\n"
	".type ptw_probe_guarded, @function\n"
	"ptw_probe_guarded:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register rbp\n"
	"	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq ptw_probe_guard@gottpoff(%rip), %rax\n"
	"	movq %rsp, %fs:(%rax)\n"
	"	subq $8, %rsp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movl $1, %eax\n"
	"	jmp 1f\n"
	".hidden ptw_probe_recover\n"
	".globl ptw_probe_recover\n"
	"ptw_probe_recover:\n"
	"	xorl %eax, %eax\n"
	"1:	movq ptw_probe_guard@gottpoff(%rip), %rcx\n"
	"	movq $0, %fs:(%rcx)\n"
	"	leaq -40(%rbp), %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
	".cfi_def_cfa rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size ptw_probe_guarded, .-ptw_probe_guarded\n"
	".popsection\n");

bool ptw_probe_fault(int signal, ucontext_t *context)
{
	uint64_t stack = ptw_probe_guard;
	if (!stack || (signal != SIGSEGV && signal != SIGBUS && signal != SIGFPE && signal != SIGILL))
		return false;
	greg_t *registers = context->uc_mcontext.gregs;
	registers[REG_RIP] = (greg_t)ptw_probe_recover;
	registers[REG_RSP] = (greg_t)stack;
	registers[REG_RBP] = (greg_t)(stack + SAVED);
	registers[REG_EFL] &= ~(greg_t)DIRECTION_FLAG;
	return true;
}

void ptw_probe_crashed(uint32_t hit)
{
	struct ptw_probe_action *action = &ptw_probes.action[hit];
	char line[96];
	uint32_t user = PTW_PROBE_USER;
	if (!__atomic_compare_exchange_n(&action->kind, &user, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	snprintf(line, sizeof line, "the handler of a probe crashed: the probe is off (number %u)", hit);
	ptw_notice(PTW_NOTICE_PROBE, (const void *)action->address, line);
}

/* --- signals, where threads are threads -------------------------------------------------------------------------- */

static struct sigaction wanted[CAUGHT]; /* by the program */
static bool catching;

static int index_of(int signal)
{
	for (int i = 0; i < CAUGHT; i++)
		if (caught[i] == signal)
			return i;
	return -1;
}

static void on_fault(int signal, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	if (ptw_probe_fault(signal, context))
		return;
	struct sigaction *action = &wanted[index_of(signal)];
	if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN) {
		struct sigaction none = {0};
		if (action->sa_handler == SIG_IGN && info->si_code <= 0)
			return;
		GLIBC(sigaction)(signal, &none, NULL);
		if (info->si_code <= 0) /* nothing is executed again that would raise it */
			PTW_SYS(SYS_tgkill, ptw_getpid(), ptw_gettid(), signal, 0, 0, 0);
		return;
	}
	sigset_t mask = action->sa_mask;
	if (!(action->sa_flags & SA_NODEFER))
		sigaddset(&mask, signal);
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
	void (*handler)(int, siginfo_t *, void *) = action->sa_sigaction;
	if (action->sa_flags & SA_RESETHAND)
		action->sa_handler = SIG_DFL;
	handler(signal, info, context);
}

bool ptw_probe_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	int at = index_of(signal);
	if (!catching || at < 0)
		return false;
	struct sigaction before = wanted[at];
	if (action)
		wanted[at] = *action;
	if (old)
		*old = before;
	return true;
}

static void catch_faults(void)
{
	struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	ours.sa_sigaction = on_fault;
	for (int i = 0; i < CAUGHT; i++)
		GLIBC(sigaction)(caught[i], &ours, &wanted[i]);
	catching = true;
}

/* --- loading ----------------------------------------------------------------------------------------------------- */

static void *function_of(const struct ptw_plan_function *function)
{
	char path[sizeof ptw_probes.folder + sizeof function->object + 2];
	snprintf(path, sizeof path, "%s/%.*s", ptw_probes.folder, (int)sizeof function->object, function->object);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found = NULL;
	if (library)
		found = dlsym(library, function->name);
	if (!found)
		ptw_notice(PTW_NOTICE_PROBE, NULL, "the handler of a probe cannot be loaded: nothing is probed");
	return found;
}

bool ptw_probe_user_begin(const struct ptw_plan_hit *hits, const struct ptw_plan_function *functions, uint32_t count)
{
	for (uint32_t i = 0; i < ptw_probes.hits; i++) {
		if (hits[i].kind != PTW_PROBE_USER)
			continue;
		if (hits[i].function >= count)
			return false;
		void *found = function_of(&functions[hits[i].function]);
		if (!found)
			return false;
		*(void **)&ptw_probes.action[i].function = found;
	}
	if (count)
		catch_faults();
	return true;
}
