/* SPDX-License-Identifier: MIT */
/*
 * vfork; vforks.h says what its children are.
 *
 * Parent and child return from the same frame, and the child goes first: it may overwrite all of the stack from our
 * return address downwards. That address is carried over in a register, which each process has for itself.
 */
#define _GNU_SOURCE
#include "vforks.h"

#include "errand.h"
#include "fork.h"
#include "servant.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

__thread uint32_t ptw_vforked __attribute__((tls_model("initial-exec")));

/* Of the outermost vfork of a thread other than main, while a process in between makes its child. */
static __thread struct {
	bool in_between;
	uint64_t mask;
	char name[16];
} now;

struct how {
	long *result; /* where the process in between leaves it; NULL: there is none */
	const char *name; /* it takes */
};

static void set_mask(uint64_t mask, uint64_t *before)
{
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, before, sizeof mask, 0, 0);
}

/* What vfork does first. */
__attribute__((used, visibility("hidden"))) struct how ptw_vfork_begins(void)
{
	bool outermost = ptw_vforked == 0;
	if (outermost && ptw_process_mode && !ptw_is_main() && ptw_slot_runs()) {
		set_mask(PTW_ALL_BUT_FAULTS, &now.mask);
		ptw_fork_adopts(true);
		PTW_SYS(SYS_prctl, PR_GET_NAME, now.name, 0, 0, 0, 0);
		now.in_between = true;
		ptw_slot()->fork_result = -EAGAIN;
	}
	ptw_vforked++;
	return outermost && now.in_between ? (struct how){&ptw_slot()->fork_result, PTW_SERVANT_NAME} : (struct how){NULL, NULL};
}

/* What it does in the child. */
__attribute__((used, visibility("hidden"))) pid_t ptw_vfork_child(void)
{
	if (ptw_vforked == 1 && now.in_between) {
		PTW_SYS(SYS_prctl, PR_SET_NAME, now.name, 0, 0, 0, 0);
		set_mask(now.mask, NULL);
	}
	return 0;
}

/* What it does in the parent, with what the kernel returned. */
__attribute__((used, visibility("hidden"))) pid_t ptw_vfork_parent(long result)
{
	if (--ptw_vforked == 0 && now.in_between) {
		while (result > 0 && PTW_SYS(SYS_waitid, P_PID, result, NULL, WEXITED | __WALL, 0, 0) == -EINTR)
			;
		if (result > 0)
			result = ptw_slot()->fork_result;
		ptw_fork_adopts(false);
		now.in_between = false;
		set_mask(now.mask, NULL);
	}
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return (pid_t)result;
}

/*
 * r9 has the return address; r8 and r10 are what ptw_vfork_begins returned. The kernel leaves them alone. A process in
 * between runs from the first clone to exit_group. The call that makes the program's child is in a function of its own,
 * by which it is told from ours (merge/ptweave/merge/own_calls.py).
 */
__asm__(".pushsection .text.vfork,\"ax\",@progbits\n"
	".globl vfork\n"
	".type vfork, @function\n"
	".globl __vfork\n"
	".set __vfork, vfork\n"
	"vfork:\n"
	".cfi_startproc\n"
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call ptw_vfork_begins\n"
	"	addq $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %r9\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_register rip, r9\n"
	"	testq %rax, %rax\n"
	"	jnz ptw_vfork_between\n"
	"	movl $58, %eax\n" /* vfork */
	"	syscall\n"
	".cfi_endproc\n"
	".size vfork, .-vfork\n"

	".type ptw_vfork_made, @function\n"
	"ptw_vfork_made:\n" /* in the child, and then in the parent */
	".cfi_startproc\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_register rip, r9\n"
	"	pushq %r9\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_offset rip, -8\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	movq %rax, %rdi\n"
	"	jmp ptw_vfork_parent\n"
	"1:	jmp ptw_vfork_child\n"
	".cfi_endproc\n"
	".size ptw_vfork_made, .-ptw_vfork_made\n"

	".type ptw_vfork_between, @function\n"
	"ptw_vfork_between:\n"
	".cfi_startproc\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_register rip, r9\n"
	"	movq %rax, %r8\n"
	"	movq %rdx, %r10\n"
	"	movl $0x4100, %edi\n" /* CLONE_VM | CLONE_VFORK, and nothing is sent when it ends */
	"	xorl %esi, %esi\n"
	"	xorl %edx, %edx\n"
	"	movl $56, %eax\n" /* clone */
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jnz ptw_vfork_made\n"
	"	movl $15, %edi\n" /* PR_SET_NAME */
	"	movq %r10, %rsi\n"
	"	movl $157, %eax\n" /* prctl */
	"	syscall\n"
	".cfi_endproc\n"
	".size ptw_vfork_between, .-ptw_vfork_between\n"

	".type ptw_vfork_split, @function\n"
	"ptw_vfork_split:\n"
	".cfi_startproc\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_register rip, r9\n"
	"	movl $0x4111, %edi\n" /* CLONE_VM | CLONE_VFORK | SIGCHLD */
	"	xorl %esi, %esi\n"
	"	xorl %edx, %edx\n"
	"	movl $56, %eax\n"
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jz ptw_vfork_made\n"
	"	movq %rax, (%r8)\n"
	"	xorl %edi, %edi\n"
	"	movl $231, %eax\n" /* exit_group */
	"	syscall\n"
	"	ud2\n"
	".cfi_endproc\n"
	".size ptw_vfork_split, .-ptw_vfork_split\n"
	".popsection\n");
