/* SPDX-License-Identifier: MIT */
/*
 * From a trampoline to a handler, and back with everything as it was.
 *
 * The quick way keeps rax, rdi and the flags; its handler keeps the other registers. It
 * is taken at the beginnings of functions, where the direction flag is clear. The full way keeps all registers, the
 * extended ones with XSAVE, and lets handlers read them.
 */
#include "probe.h"

#include <cpuid.h>

enum { XSAVE_STATES = 0xe7 /* x87, SSE, AVX, AVX-512 */, FXSAVE_SIZE = 576 };

/* 0: FXSAVE. Read by the assembly below. */
PTW_HIDDEN uint32_t ptw_probe_states;
PTW_HIDDEN uint64_t ptw_probe_states_size = FXSAVE_SIZE;

void ptw_probe_enter_init(void)
{
	uint32_t a, b, c, d, low, high;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if (!__get_cpuid_count(13, 0, &a, &b, &c, &d) || b < FXSAVE_SIZE)
		return;
	ptw_probe_states_size = b;
	ptw_probe_states = low & XSAVE_STATES;
}

#define PUSH_ALL                                                                                             \
	"	pushfq\n	cld\n"                                                                       \
	"	pushq %rax\n	pushq %rbx\n	pushq %rcx\n	pushq %rdx\n	pushq %rbp\n"                \
	"	pushq %rsi\n	pushq %rdi\n	pushq %r8\n	pushq %r9\n	pushq %r10\n"                \
	"	pushq %r11\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"                \
	"	movq %rsp, %rdi\n"                                                                           \
	"	movq %rsp, %rbx\n"                                                                           \
	"	subq ptw_probe_states_size(%rip), %rsp\n"                                                    \
	"	andq $-64, %rsp\n"                                                                           \
	"	movl ptw_probe_states(%rip), %eax\n"                                                         \
	"	testl %eax, %eax\n"                                                                          \
	"	jz 1f\n"                                                                                     \
	"	xorl %edx, %edx\n"                                                                           \
	"	movq %rdx, 512(%rsp)\n	movq %rdx, 520(%rsp)\n	movq %rdx, 528(%rsp)\n	movq %rdx, 536(%rsp)\n"      \
	"	movq %rdx, 544(%rsp)\n	movq %rdx, 552(%rsp)\n	movq %rdx, 560(%rsp)\n	movq %rdx, 568(%rsp)\n"      \
	"	xsave64 (%rsp)\n"                                                                            \
	"	jmp 2f\n"                                                                                    \
	"1:	fxsave64 (%rsp)\n"                                                                           \
	"2:\n"

#define POP_ALL                                                                                              \
	"	movl ptw_probe_states(%rip), %eax\n"                                                         \
	"	testl %eax, %eax\n"                                                                          \
	"	jz 3f\n"                                                                                     \
	"	xorl %edx, %edx\n"                                                                           \
	"	xrstor64 (%rsp)\n"                                                                           \
	"	jmp 4f\n"                                                                                    \
	"3:	fxrstor64 (%rsp)\n"                                                                          \
	"4:	movq %rbx, %rsp\n"                                                                           \
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %r11\n"                 \
	"	popq %r10\n	popq %r9\n	popq %r8\n	popq %rdi\n	popq %rsi\n"                 \
	"	popq %rbp\n	popq %rdx\n	popq %rcx\n	popq %rbx\n	popq %rax\n"                 \
	"	popfq\n"

#define FUNCTION(name, text)                                     \
	__asm__(".pushsection .text." #name ",\"ax\",@progbits\n" \
		".p2align 5\n"                                    \
		".hidden " #name "\n"                             \
		".globl " #name "\n"                              \
		".type " #name ", @function\n" #name ":\n"        \
		".cfi_startproc\n"                                \
		".cfi_undefined rip\n" text ".cfi_endproc\n"      \
		".size " #name ", .-" #name "\n"                  \
		".popsection\n")

FUNCTION(ptw_probe_enter_quick,
	 "	pushq %rax\n"
	 "	lahf\n"
	 "	seto %al\n"
	 "	pushq %rdi\n"
	 "	movl 24(%rsp), %edi\n"
	 "	pushq %rax\n"
	 "	call ptw_probe_quick\n"
	 "	testb %al, %al\n"
	 "	popq %rax\n"
	 "	popq %rdi\n"
	 "	jz 9f\n"
	 "	addb $0x7f, %al\n"
	 "	sahf\n"
	 "	popq %rax\n"
	 "	ret\n"
	 "9:	addb $0x7f, %al\n"
	 "	sahf\n"
	 "	popq %rax\n"
	 "	jmp ptw_probe_enter_full\n");

FUNCTION(ptw_probe_enter_full, PUSH_ALL "	call ptw_probe_hit\n" POP_ALL "	ret\n");

/* Functions whose return is watched return to here. */
FUNCTION(ptw_probe_returned,
	 "	subq $8, %rsp\n" /* where the return address goes */
	 "	pushq $0\n	pushq $0\n" /* as in struct ptw_probe_frame */
	 PUSH_ALL
	 "	call ptw_probe_leave\n"
	 "	movq %rax, 144(%rbx)\n"
	 POP_ALL
	 "	leaq 16(%rsp), %rsp\n"
	 "	ret\n");
