/* SPDX-License-Identifier: MIT */
/*
 * main() runs on a stack in shared memory, so that pointers to its locals work in every thread. In native mode nothing
 * changes: the program's main() is called as ever.
 *
 * The frame that calls main() there is the outermost: unwinders stop at it. Constructors ran before, on the kernel's
 * stack; arguments and environment stay where the kernel put them, in memory that becomes shared.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "early.h"
#include "engine.h"
#include "fitness.h"
#include "pages.h"
#include "segments.h"
#include "slots.h"
#include "threading.h"

#include <dlfcn.h>
#include <stdlib.h>

static struct {
	int (*main)(int, char **, char **);
	int argc;
	char **argv, **environment;
} program;

/* Never returns: `function` does not. */
void ptw_on_stack(void (*function)(void), uint64_t stack_pointer) PTW_HIDDEN __attribute__((noreturn));

__asm__(".pushsection .text.ptw_on_stack,\"ax\",@progbits\n"
	".hidden ptw_on_stack\n"
	".globl ptw_on_stack\n"
	".type ptw_on_stack, @function\n"
	"ptw_on_stack:\n"
	".cfi_startproc\n"
	".cfi_undefined rip\n"
	"	movq %rsi, %rsp\n"
	"	xorl %ebp, %ebp\n"
	"	call *%rdi\n"
	"	ud2\n"
	".cfi_endproc\n"
	".size ptw_on_stack, .-ptw_on_stack\n"
	".popsection\n");

/* Nobody is on the kernel's stack any more: from now on all processes have the same, with arguments and environment. */
static void run_main(void)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	if (!ptw_under_engine()) /* there it is the engine that shows them */
		ptw_arguments_keep();
	ptw_segments_share_around(program.argv);
	ptw_restore_signals(&mask);
	exit(program.main(program.argc, program.argv, program.environment));
}

static int main_in_process_mode(int argc, char **argv, char **environment)
{
	program.argc = argc;
	program.argv = argv;
	program.environment = environment;
	if (!ptw_threading_begin())
		return program.main(argc, argv, environment);
	const struct ptw_slot *slot = &ptw_shared->slot[0];
	ptw_on_stack(run_main, (slot->stack + slot->stack_size - PTW_PAGE) & ~63ull);
}

typedef int start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
		       void *);

PTW_EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
				 void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
	start_main *real = (start_main *)dlsym(RTLD_NEXT, "__libc_start_main");
	bool fit = ptw_fit();
	program.main = main;
	if (!fit)
		ptw_early_end();
	return real(fit ? main_in_process_mode : main, argc, argv, init, fini, loader_fini, stack_end);
}
