/* SPDX-License-Identifier: MIT */
/* Faults behind every kind of flag operation, and prints what a handler finds: how far rip is before the place to go
   on at, the flags that are defined, and a register. The same as on the processor, or the engine keeps state wrongly. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

enum { CF = 1, PF = 4, ZF = 64, SF = 128, OF = 2048, DF = 1024, ROUNDS = 3 };

static void handler(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)number;
	(void)info;
	printf(" %lld/%llx/%llx", registers[REG_RIP] - registers[REG_RDX],
	       registers[REG_EFL] & (CF | PF | ZF | SF | OF | DF), registers[REG_RAX]);
	registers[REG_RIP] = registers[REG_RDX];
}

/* `operations` on rax and rbx, then a read through a bad pointer, then the flags once more as setcc sees them. */
#define FAULT_AFTER(operations) do {                                                                \
	uint64_t a = first, b = second;                                                             \
	uint8_t carry, zero, over;                                                                  \
	__asm__ volatile("lea 9f(%%rip), %%rdx\n\t" operations "\n\tmov (%%rsi), %%rcx\n9:\n\t"      \
			 "setc %2\n\tsetz %3\n\tseto %4"                                            \
			 : "+a"(a), "+b"(b), "=q"(carry), "=q"(zero), "=q"(over)                    \
			 : "S"(bad) : "rcx", "rdx", "cc");                                          \
	printf(" %d%d%d\n", carry, zero, over);                                                     \
} while (0)

static void round_of(uint64_t first, uint64_t second, uint64_t *bad)
{
	FAULT_AFTER("add %%rbx, %%rax");
	FAULT_AFTER("sub %%rbx, %%rax");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tinc %%rax");
	FAULT_AFTER("cmp %%rax, %%rbx\n\tdec %%eax");
	FAULT_AFTER("add %%rbx, %%rax\n\tinc %%rax\n\tcmp %%rbx, %%rax\n\tinc %%rbx\n\tadc $0, %%rax");
	FAULT_AFTER("and %%rbx, %%rax");
	FAULT_AFTER("test %%rax, %%rax\n\tsbb %%rbx, %%rax");
	FAULT_AFTER("add %%rbx, %%rax\n\tadc %%rbx, %%rax\n\ttest %%eax, %%eax");
	FAULT_AFTER("xor %%rbx, %%rax\n\tshl $3, %%rax\n\ttest %%rax, %%rax");
	FAULT_AFTER("shr $1, %%rax\n\tinc %%rax\n\tdec %%rbx");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tjb 1f\n\tinc %%rax\n1:\tinc %%rax");
	FAULT_AFTER("add %%rbx, %%rax\n\tjno 1f\n\tlea 5(%%rax), %%rax\n1:\tmov %%rax, %%rbx");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tinc %%rax\n\tjmp 1f\n1:\ttest %%rbx, %%rbx\n\tdec %%rax");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tinc %%rax\n\tjmp 1f\n1:\ttest %%rbx, %%rbx\n\tsbb %%rax, %%rax");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tinc %%rax\n\tjmp 1f\n1:\tadd $0, %%rbx\n\tjmp 1f\n1:\tand %%rax, %%rbx");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tjb 1f\n1:\tlea 1(%%rax), %%rbx");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tjae 1f\n\txor %%ecx, %%ecx\n1:\tmov %%rbx, %%rax");
	FAULT_AFTER("cmp %%rbx, %%rax\n\tjb 1f\n1:\tmov (%%rsi), %%rcx\n\tadd %%rbx, %%rax");
	FAULT_AFTER("sub %%rbx, %%rax\n\tjmp 1f\n1:\tlea 1(%%rax), %%rcx\n\tmov (%%rsi), %%rcx\n\txor %%rbx, %%rax");
	FAULT_AFTER("sub %%rbx, %%rax\n\tjmp 1f\n1:\tmov %%rax, %%rbx\n\tmov %%rsp, %%rcx\n\tmov (%%rcx), %%rcx");
	FAULT_AFTER("xor %%ecx, %%ecx\n\tcmp %%rbx, %%rax\n\tsetb %%cl\n\tmov %%rcx, %%rax");
	FAULT_AFTER("test %%rbx, %%rbx\n\tmov %%bl, %%al");
	FAULT_AFTER("mov %%bx, %%ax\n\tadd %%rax, %%rbx");
	FAULT_AFTER("add %%bl, %%al\n\tadd %%bx, %%ax\n\tadd %%al, %%bl");
	FAULT_AFTER("mov %%bl, %%ah\n\tmov %%ax, %%bx\n\tadd %%bl, %%ah\n\tadd %%ah, %%al");
	FAULT_AFTER("test %%rbx, %%rbx\n\tmov %%bl, %%al\n\tmov %%rax, %%rcx\n\tmov %%ch, %%al\n\txchg %%al, %%bl");
	FAULT_AFTER("stc\n\tdec %%rax\n\tadc %%rbx, %%rax");
	FAULT_AFTER("bt $3, %%rax\n\trcl $1, %%rax\n\tor %%rax, %%rax");
	FAULT_AFTER("mov $7, %%ecx\n1:\tsub %%rcx, %%rax\n\tdec %%ecx\n\tjnz 1b\n\tcmp $3, %%rax");
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	const uint64_t values[][2] = { { 5, 5 }, { 3, ~0ULL }, { 0x7fffffffffffffff, 1 }, { 0x80000000, 0x80000001 },
				       { ~0ULL, 0 }, { 0, 9 } };

	if (sigaction(SIGSEGV, &action, NULL))
		return 1;
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < sizeof values / sizeof *values; i++)
			round_of(values[i][0], values[i][1], (uint64_t *)(uintptr_t)(8 + round));
	return 0;
}
