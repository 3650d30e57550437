// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The debug exception: steps, which are most of what the laboratory's machines do, without the kernel's way of taking
 * exceptions, and everything else as a processor raises it: one for a step and the data breakpoint that the step hit.
 *
 * QEMU raises two: the step's, and before the first instruction of its handler the breakpoint's. Linux gives both the same
 * stack (IST), so the second frame would take the first one's place, and the handler return to its own beginning for
 * ever. And once a data breakpoint was hit, DR6 names it at each step that follows. So an entry of ours comes first, on
 * no stack of its own. Where there is a second frame it drops that: DR6 has both reasons. A step without one hit
 * nothing: DR6 keeps that reason alone (an execution breakpoint is an exception of its own in any case).
 */
#include <linux/smp.h>
#include <asm/desc.h>
#include <asm/nospec-branch.h>
#include <asm/trapnr.h>

#include "cpu.h"

extern const char ptlab_debug_entry[];
void *ptlab_debug_handler; /* the kernel's */

static gate_desc table[IDT_ENTRIES] __aligned(PAGE_SIZE);

/* Where a step of the running task can be worked on: its kernel's stack, which is empty but for what it came in with. */
__visible void *ptlab_step_stack(void)
{
	return task_pt_regs(current);
}

/*
 * (%rsp): where it came, 8(%rsp): that code's segment, 24(%rsp): its stack, where the first frame is. 0x4000: DR_STEP,
 * 15: DR_TRAP_BITS, 0xffff0ff0: none (DR6_RESERVED). What follows a step that ptlab_step does not want to know of is the
 * kernel's way, with everything as it was. The stack here is the small one by which tasks enter the kernel, and the page
 * tables are the kernel's (the machine has no mitigations).
 */
asm(".pushsection .text\n"
    ".balign 16\n"
    "ptlab_debug_entry:\n"
    "	testb $3, 8(%rsp)\n"
    "	jz 2f\n"
    "	pushq %rax\n"
    "	movq %dr6, %rax\n"
    "	testl $0x4000, %eax\n"
    "	jz 1f\n"
    "	testb $15, %al\n"
    "	jz 4f\n"
    "	andl $~15, %eax\n"
    "	movq %rax, %dr6\n"
    "	jmp 4f\n"
    "1:	popq %rax\n"
    "	jmp 3f\n"
    "2:	cmpq $ptlab_debug_entry, (%rsp)\n"
    "	jne 3f\n"
    "	movq 24(%rsp), %rsp\n"
    "3:	" ANNOTATE_RETPOLINE_SAFE
    "	jmp *ptlab_debug_handler(%rip)\n"
    "4:	cld\n"
    "	swapgs\n"
    "	pushq %rcx\n"
    "	pushq %rdx\n"
    "	pushq %rsi\n"
    "	pushq %rdi\n"
    "	pushq %r8\n"
    "	pushq %r9\n"
    "	pushq %r10\n"
    "	pushq %r11\n"
    "	pushq %rbx\n"
    "	movq %rsp, %rbx\n"
    "	call ptlab_step_stack\n"
    "	movq 80(%rbx), %rdi\n"
    "	movq %rax, %rsp\n"
    "	andq $-16, %rsp\n"
    "	call ptlab_step\n"
    "	movq %rbx, %rsp\n"
    "	testb %al, %al\n"
    "	jz 5f\n"
    "	movl $0xffff0ff0, %eax\n"
    "	movq %rax, %dr6\n"
    "5:	popq %rbx\n"
    "	popq %r11\n"
    "	popq %r10\n"
    "	popq %r9\n"
    "	popq %r8\n"
    "	popq %rdi\n"
    "	popq %rsi\n"
    "	popq %rdx\n"
    "	popq %rcx\n"
    "	swapgs\n"
    "	jz 1b\n" /* no instruction since the test has changed the flags that matter: ZF */
    "	popq %rax\n"
    "	iretq\n"
    ".popsection\n");

static void load(void *described)
{
	asm volatile("lidt %0" : : "m"(*(struct desc_ptr *)described));
}

void ptlab_debug_init(void)
{
	struct desc_ptr described;
	gate_desc *gate = &table[X86_TRAP_DB];
	unsigned long entry = (unsigned long)ptlab_debug_entry;

	asm volatile("sidt %0" : "=m"(described));
	memcpy(table, (const void *)described.address, sizeof(table));
	ptlab_debug_handler = (void *)gate_offset(gate);
	gate->bits.ist = 0;
	gate->offset_low = (u16)entry;
	gate->offset_middle = (u16)(entry >> 16);
	gate->offset_high = (u32)(entry >> 32);
	described.address = (unsigned long)table;
	on_each_cpu(load, &described, 1);
}
