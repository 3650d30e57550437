/* SPDX-License-Identifier: MIT */
/* The fault handler; fault.h says what is guaranteed. */
#define _GNU_SOURCE
#include "fault.h"

#include "adopt.h"
#include "dispositions.h"
#include "handlers.h"
#include "handshake.h"
#include "instructions.h"
#include "pages.h"
#include "places.h"
#include "probe_user.h"
#include "segments.h"
#include "untracked.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = PTW_OWN_STACK_SIZE / 2, BELOW_FRAME = 4096, WRITE_ACCESS = 2, INSTRUCTION_FETCH = 16 };

void ptw_fault_fatal(const char *what, long error)
{
	char line[140];
	snprintf(line, sizeof line, "%s (error %ld): process mode ends the program; use --threads=native", what, -error);
	ptw_say(line);
	PTW_SYS(SYS_exit_group, 3, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

/* The program's own fault: its handler, or the end. We came with everything blocked. */
static void pass_on(siginfo_t *info, ucontext_t *context)
{
	struct ptw_action action = ptw_dispositions_take(SIGSEGV);
	ptw_handler_run_open(&action, SIGSEGV, info, context);
}

/* False: it is the program's own. */
static bool handle(const siginfo_t *info, const greg_t *registers)
{
	/* the instruction itself, not the one before its address */
	struct ptw_frame frame = {(uint64_t)registers[REG_RIP] + 1, (uint64_t)registers[REG_RSP],
				  (uint64_t)registers[REG_RBP], (uint64_t)registers[REG_RBX], true};
	uint64_t address = (uint64_t)info->si_addr;
	bool missing = info->si_code == SEGV_MAPERR || (info->si_code == SEGV_ACCERR && ptw_places_contain(address));
	if (missing && ptw_segments_admit(address))
		return true;
	if (info->si_code > 0 && (registers[REG_ERR] & INSTRUCTION_FETCH
					  ? ptw_pages_execute(address)
					  : ptw_pages_fault(address, registers[REG_ERR] & WRITE_ACCESS, &frame)))
		return true;
	if (missing)
		return ptw_adopt(address);
	return info->si_code == SEGV_ACCERR && /* reserved here, in use elsewhere */
	       (ptw_segments_admit(address) || ptw_untracked_again(address));
}

static __thread bool handling;

static void on_fault(int signal, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	const greg_t *registers = context->uc_mcontext.gregs;
	int before = errno;
	(void)signal;
	if (handling) { /* a call stack leads through a library that is not mapped here yet */
		if (!ptw_segments_admit((uint64_t)info->si_addr) && !ptw_adopt((uint64_t)info->si_addr))
			ptw_install(SIGSEGV, 0, 0, 0);
		return;
	}
	handling = true;
	bool done = handle(info, registers);
	handling = false;
	if (!done && !ptw_probe_fault(SIGSEGV, context))
		pass_on(info, context);
	errno = before;
}

void ptw_fault_init(void)
{
	ptw_install(SIGSEGV, (uint64_t)on_fault, SA_SIGINFO | SA_ONSTACK | SA_NODEFER, PTW_ALL_BUT_FAULTS);
}

/* In two halves, so that one can be left as it is while the other is used. */
static uint64_t stacks;

static bool map_stack(uint64_t start, uint64_t size)
{
	return PTW_SYS(SYS_mmap, start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		       0) == (long)start;
}

void ptw_fault_stack(void)
{
	if (!stacks) { /* later processes have inherited it, and may be on it */
		if (!map_stack(PTW_OWN_STACK, 2 * STACK) || !map_stack(PTW_OWN_ASIDE, PTW_OWN_ASIDE_SIZE))
			return;
		stacks = PTW_OWN_STACK;
	}
	stack_t alternate = {.ss_sp = (void *)(stacks + STACK), .ss_size = STACK};
	PTW_SYS(SYS_sigaltstack, &alternate, 0, 0, 0, 0, 0);
}

bool ptw_fault_stack_has(uint64_t address) { return stacks && address - stacks < 2 * STACK; }

stack_t ptw_fault_stack_beside(uint64_t frame, bool nested)
{
	bool upper = frame - stacks >= STACK;
	uint64_t low = stacks + (upper ? STACK : 0), other = stacks + (upper ? 0 : STACK);
	if (!nested)
		return (stack_t){.ss_sp = (void *)other, .ss_size = STACK};
	uint64_t end = (frame - BELOW_FRAME) & ~63ull; /* the other half is in use, too */
	return (stack_t){.ss_sp = (void *)low, .ss_size = end - low};
}
