/* SPDX-License-Identifier: MIT */
/*
 * getcontext and its kin (System V): the kernel reads and writes a context's signal mask, so its memory is opened before.
 *
 * When a context's function returns, the C library goes on with the next context by itself, and ends the program where the
 * kernel cannot read that one's mask. So a context that begins returns to code of ours, which does the same and opens it
 * first: where makecontext had the function return to is exchanged when it is switched to. Where the C library's code
 * there is not as it is known, it is left alone.
 */
#define _GNU_SOURCE
#include "next.h"
#include "touch.h"
#include "unwind.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { NOT_KNOWN = 1, PROBE_WORDS = 64 };

PTW_HIDDEN void ptw_context_starts(void);
PTW_HIDDEN __attribute__((noreturn)) void ptw_context_ends(const ucontext_t *next);

/* Where a context's function returns to: RBX points to the next context's address (glibc, makecontext of x86-64). Nothing
 * called it, which the byte before it says, too: unwinders look there. */
__asm__(".pushsection .text.ptw_context_starts,\"ax\",@progbits\n"
	".hidden ptw_context_starts\n"
	".globl ptw_context_starts\n"
	".type ptw_context_starts, @function\n"
	".cfi_startproc\n"
	".cfi_undefined rip\n"
	"	nop\n"
	"ptw_context_starts:\n"
	"	movq %rbx, %rsp\n"
	"	movq (%rsp), %rdi\n"
	"	call ptw_context_ends\n"
	"	hlt\n"
	".cfi_endproc\n"
	".size ptw_context_starts, .-ptw_context_starts\n"
	".popsection\n");

void ptw_context_ends(const ucontext_t *next)
{
	if (!next)
		exit(0);
	exit(setcontext(next));
}

static void nothing(void) {}

/* The C library's own such place; NOT_KNOWN when it does other things than ours. */
static uint64_t place_of_libc(void)
{
	/* mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi; je …; call … */
	static const uint8_t known[] = {0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74, 0x08, 0xe8};
	uint64_t stack[PROBE_WORDS];
	ucontext_t probe;
	memset(&probe, 0, sizeof probe);
	probe.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
	makecontext(&probe, nothing, 0);
	uint64_t place = *(const uint64_t *)probe.uc_mcontext.gregs[REG_RSP];
	return memcmp((const void *)place, known, sizeof known) == 0 ? place : NOT_KNOWN;
}

static void return_to_us(const ucontext_t *context)
{
	static uint64_t place;
	uint64_t *top = (uint64_t *)context->uc_mcontext.gregs[REG_RSP];
	if (!place)
		place = place_of_libc();
	if (place != NOT_KNOWN && top && *top == place)
		*top = (uint64_t)ptw_context_starts;
}

static __attribute__((noinline)) void touch_context(const ucontext_t *context, bool write)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracking)
		return;
	ptw_touch(context, sizeof *context, write, &caller);
	if (!write)
		return_to_us(context);
}

/* What they save is their caller's registers: they are jumped to (gcc does that with -O2). */
PTW_EXPORT int getcontext(ucontext_t *ret)
{
	touch_context(ret, true);
	return PTW_NEXT(getcontext)(ret);
}

PTW_EXPORT int setcontext(const ucontext_t *context)
{
	touch_context(context, false);
	return PTW_NEXT(setcontext)(context);
}

PTW_EXPORT int swapcontext(ucontext_t *ret, const ucontext_t *context)
{
	touch_context(ret, true);
	touch_context(context, false);
	return PTW_NEXT(swapcontext)(ret, context);
}
