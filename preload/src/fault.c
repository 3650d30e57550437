/* SPDX-License-Identifier: MIT */
/* The fault handler; fault.h says what is guaranteed. */
#define _GNU_SOURCE
#include "fault.h"

#include "adopt.h"
#include "dispositions.h"
#include "handshake.h"
#include "pages.h"
#include "segments.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 64 << 10, WRITE_ACCESS = 2, INSTRUCTION_FETCH = 16 };

void ptw_fault_fatal(const char *what, long error)
{
	char line[140];
	snprintf(line, sizeof line, "%s (error %ld): process mode ends the program; use --threads=native", what, -error);
	ptw_say(line);
	PTW_SYS(SYS_exit_group, 3, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

/* The program's own fault: its handler, or the end. */
static void pass_on(siginfo_t *info, ucontext_t *context)
{
	struct ptw_action action = *ptw_fault_action();
	if (action.handler == (uint64_t)SIG_DFL || action.handler == (uint64_t)SIG_IGN) {
		ptw_install(SIGSEGV, 0, 0, 0);
		if (info->si_code <= 0) /* somebody sent it: the instruction will not fault again */
			PTW_SYS(SYS_tgkill, ptw_getpid(), ptw_gettid(), SIGSEGV, 0, 0, 0);
		return;
	}
	if (action.flags & SA_RESETHAND)
		ptw_fault_action()->handler = (uint64_t)SIG_DFL;
	uint64_t mask = *(const uint64_t *)&context->uc_sigmask | action.mask;
	mask &= ~(1ull << (SIGSEGV - 1));
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof mask, 0, 0);
	if (action.flags & SA_SIGINFO)
		((void (*)(int, siginfo_t *, void *))action.handler)(SIGSEGV, info, context);
	else
		((void (*)(int))action.handler)(SIGSEGV);
}

static void on_fault(int signal, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	const greg_t *registers = context->uc_mcontext.gregs;
	int before = errno;
	(void)signal;
	/* the instruction itself, not the one before its address */
	struct ptw_frame frame = {(uint64_t)registers[REG_RIP] + 1, (uint64_t)registers[REG_RSP],
				  (uint64_t)registers[REG_RBP]};
	uint64_t address = (uint64_t)info->si_addr;
	bool missing = info->si_code == SEGV_MAPERR;
	if (missing && ptw_segments_admit(address)) {
		errno = before;
		return;
	}
	bool ours = info->si_code > 0 && !(registers[REG_ERR] & INSTRUCTION_FETCH) &&
		    ptw_pages_fault(address, registers[REG_ERR] & WRITE_ACCESS, &frame);
	if (!ours && !(missing && ptw_adopt(address)))
		pass_on(info, context);
	errno = before;
}

void ptw_fault_init(void) { ptw_install(SIGSEGV, (uint64_t)on_fault, SA_SIGINFO | SA_ONSTACK, ~0ull); }

void ptw_fault_stack(void)
{
	long stack = PTW_SYS(SYS_mmap, 0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack < 0 && stack >= -4095)
		return;
	stack_t alternate = {.ss_sp = (void *)stack, .ss_size = STACK};
	PTW_SYS(SYS_sigaltstack, &alternate, 0, 0, 0, 0, 0);
}
