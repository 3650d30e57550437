/* SPDX-License-Identifier: MIT */
/*
 * Functions with code that is awkward to move, called known numbers of times: probed COUNT [THREADS]. What they return
 * is printed, so that a wrong move shows.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name) __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n"
#define END(name) ".size " #name ",.-" #name "\n")

/* rip-relative operand */
FUNCTION(relative)
"	movq table(%rip), %rax\n	addq %rdi, %rax\n	ret\n" END(relative);
/* a short branch among the first bytes, and another at the end of them */
FUNCTION(branches)
"	test %rdi, %rdi\n	jz 1f\n	leaq 3(%rdi,%rdi), %rax\n	ret\n1:	movl $77, %eax\n	ret\n" END(branches);
/* a counter in rcx */
FUNCTION(counted)
"	movq %rdi, %rcx\n	jrcxz 1f\n	leaq 5(%rcx), %rax\n	ret\n1:	movl $9, %eax\n	ret\n" END(counted);
/* a call moves, and must return to where it was */
FUNCTION(calling)
"	call relative\n	addq $1, %rax\n	ret\n" END(calling);
/* a call through memory that the stack pointer names */
FUNCTION(calling_stack)
"	movq %rdi, %rdx\n	call *8(%rsp)\n	addq $2, %rax\n	ret\n" END(calling_stack);
/* keeps words below the stack pointer; the probe is in its midst, with flags that matter */
FUNCTION(red_zone)
"	movq %rdi, -8(%rsp)\n	movq $5, -16(%rsp)\n	cmpq $10, %rdi\n"
".globl red_zone_middle\nred_zone_middle:\n"
"	movq -8(%rsp), %rax\n	jl 1f\n	addq -16(%rsp), %rax\n1:	setc %dl\n	ret\n" END(red_zone);
/* marked for indirect branches */
FUNCTION(marked)
"	endbr64\n	leaq 4(%rdi), %rax\n	imulq $3, %rax, %rax\n	ret\n" END(marked);
/* cannot be probed */
FUNCTION(tiny)
"	incl %edi\n	ret\n" END(tiny);
FUNCTION(looped)
"	xorl %eax, %eax\n1:	incl %eax\n	cmpl %edi, %eax\n	jl 1b\n	ret\n" END(looped);
__asm__(".data\n.p2align 3\ntable: .quad 1000\n.text\n");

long relative(long), branches(long), counted(long), calling(long), red_zone(long), marked(long), looped(long);
int tiny(int);

static long through_stack(long i)
{
	long result;
	__asm__ volatile("pushq %%rbx\n	pushq %1\n	call calling_stack\n	popq %%rcx\n	popq %%rbx"
			 : "=a"(result)
			 : "r"(relative), "D"(i)
			 : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

__attribute__((noinline)) double floating(double a, long double b)
{
	return a * 1.5 + (double)b;
}

__attribute__((noinline)) long recursive(long n)
{
	return n <= 0 ? 1 : recursive(n - 1) + n;
}

__attribute__((noinline)) long named(const char *text, long number)
{
	return (long)strlen(text) + number;
}

static unsigned long count;

static void *work(void *data)
{
	long sum = 0;
	double all = 0;
	(void)data;
	for (long i = 0; i < (long)count; i++) {
		sum += relative(i) + branches(i % 3) + counted(i % 4) + calling(i) + through_stack(i);
		sum ^= red_zone(i % 20) + marked(i) + tiny((int)i) + looped(i % 7);
		all += floating((double)i, (long double)i / 3);
		sum += named("four", i);
	}
	sum += recursive(20);
	return (void *)(sum ^ (long)all);
}

int main(int argc, char **argv)
{
	pthread_t thread[16];
	unsigned long threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	for (unsigned long i = 0; i < threads && i < 16; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	printf("%lx\n", (unsigned long)work(NULL));
	for (unsigned long i = 0; i < threads && i < 16; i++) {
		void *result;
		pthread_join(thread[i], &result);
		printf("%lx\n", (unsigned long)result);
	}
	return 0;
}
