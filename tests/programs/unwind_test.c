/* SPDX-License-Identifier: MIT */
/* Unit tests of the unwinder (preload/src/unwind.h), against libgcc's: backtrace(3) at the same place. */
#define _GNU_SOURCE
#include "check.h"
#include "event.h"
#include "layout.h"
#include "unwind.h"

#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static unsigned compared, deepest;

/* Both unwinders from here. The frames above this function's caller must be the same, but for a signal's interrupted
 * address, where ours says one more. */
NOINLINE static void compare(unsigned max)
{
	void *theirs[PTW_MAX_FRAMES + 1];
	uint64_t ours[PTW_MAX_FRAMES];
	struct ptw_frame caller = PTW_CALLER;
	int expected = backtrace(theirs, (int)max + 1) - 1; /* without this function */
	unsigned count = ptw_unwind(&caller, 0, ours, max);
	if (expected > (int)max)
		expected = (int)max;
	CHECK((int)count == expected);
	for (unsigned i = 0; i < count; i++)
		CHECK(ours[i] - (uint64_t)theirs[i + 1] <= 1);
	compared++;
	if (count > deepest)
		deepest = count;
}

NOINLINE static void recurse(unsigned depth)
{
	if (depth)
		recurse(depth - 1);
	else
		compare(PTW_MAX_FRAMES);
	__asm__ volatile("");
}

static void plain_frames(void)
{
	for (unsigned depth = 0; depth < 80; depth++)
		recurse(depth);
	CHECK(deepest == PTW_MAX_FRAMES);
}

static int by_value(const void *a, const void *b)
{
	compare(PTW_MAX_FRAMES);
	return *(const int *)a - *(const int *)b;
}

static void frames_of_libraries(void)
{
	int values[50];
	for (int i = 0; i < 50; i++)
		values[i] = i * 37 % 50;
	qsort(values, 50, sizeof values[0], by_value);
	CHECK(values[49] == 49 && compared > 50);
}

NOINLINE static void with_alloca(unsigned size, unsigned depth)
{
	volatile char *room = alloca(size);
	room[0] = 1;
	if (depth)
		with_alloca(size * 3 % 977 + 1, depth - 1);
	else
		compare(PTW_MAX_FRAMES);
	room[size - 1] = 1;
}

static void frames_of_variable_size(void)
{
	for (unsigned size = 1; size < 300; size += 7)
		with_alloca(size, size % 20);
}

/* A local that wants more alignment than the stack has: the frame is reached through memory. */
NOINLINE static void realigned(unsigned depth)
{
	volatile __attribute__((aligned(64))) char room[64];
	volatile char *more = alloca(depth * 8 + 16);
	room[0] = more[0] = 1;
	CHECK(((uintptr_t)room & 63) == 0);
	if (depth)
		realigned(depth - 1);
	else
		compare(PTW_MAX_FRAMES);
	room[1] = 1;
}

static void realigned_frames(void)
{
	for (unsigned depth = 0; depth < 12; depth++)
		realigned(depth);
}

static volatile int handled;

static void handler(int number)
{
	(void)number;
	compare(PTW_MAX_FRAMES);
	handled++;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info;
	ucontext_t *uc = context;
	compare(PTW_MAX_FRAMES);
	uc->uc_mcontext.gregs[REG_RIP] += 2; /* over the load, of two bytes */
	handled++;
}

NOINLINE static void fault(const int *nowhere)
{
	__asm__ volatile("movl (%%rax), %%eax" : : "a"(nowhere) : "memory");
}

static void frames_below_signal_handlers(void)
{
	static char stack[65536];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction plain = {.sa_handler = handler}, faults = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &plain, NULL);
	sigaction(SIGSEGV, &faults, NULL);
	raise(SIGUSR1);
	fault(NULL);
	sigaltstack(&other, NULL);
	plain.sa_flags = SA_ONSTACK;
	faults.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR1, &plain, NULL);
	sigaction(SIGSEGV, &faults, NULL);
	raise(SIGUSR1);
	fault(NULL);
	CHECK(handled == 4);
}

/* Calls a function, or reads from `nowhere` when there is none, in a frame that is reached through rbx alone, as that of the
 * loader's _dl_runtime_resolve is. */
void through_rbx(void (*function)(void), const int *nowhere);
extern const char behind_the_call[];
__asm__(".text\n"
	".type through_rbx, @function\n"
	"through_rbx:\n"
	"	.cfi_startproc\n"
	"	push %rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_rel_offset %rbx, 0\n"
	"	mov %rsp, %rbx\n"
	"	.cfi_def_cfa_register %rbx\n"
	"	and $-64, %rsp\n"
	"	sub $192, %rsp\n"
	"	mov %rsi, %rax\n"
	"	test %rdi, %rdi\n"
	"	jz 1f\n"
	"	call *%rdi\n"
	"behind_the_call:\n"
	"	jmp 2f\n"
	"1:	movl (%rax), %eax\n"
	"2:	mov %rbx, %rsp\n"
	"	.cfi_def_cfa_register %rsp\n"
	"	pop %rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	.cfi_restore %rbx\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size through_rbx, .-through_rbx\n");

static unsigned left;

/* Has something of its own in rbx while it calls. */
NOINLINE static void uses_rbx(void)
{
	__asm__ volatile("xor %%ebx, %%ebx" : : : "rbx");
	if (left-- > 0)
		through_rbx(uses_rbx, NULL);
	else
		compare(PTW_MAX_FRAMES);
	__asm__ volatile("" : : : "rbx");
}

static void frames_that_are_reached_through_rbx(void)
{
	for (unsigned depth = 0; depth < 20; depth++) {
		volatile char *room = alloca(depth * 8 + 8);
		room[0] = 1;
		left = depth;
		through_rbx(uses_rbx, NULL);
	}
	CHECK(compared == 20 && deepest > 40);
}

static void frames_that_are_reached_through_rbx_below_signal_handlers(void)
{
	struct sigaction faults = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &faults, NULL);
	through_rbx(NULL, NULL);
	CHECK(handled == 1 && compared == 1);
}

/* Nobody says what rbx is in the first frame: the stack ends there, and nothing is guessed. */
static void rbx_that_is_not_known_ends_the_stack(void)
{
	uint64_t ours[PTW_MAX_FRAMES], memory[64] = {[8] = (uint64_t)behind_the_call};
	struct ptw_frame inside = {.pc = (uint64_t)behind_the_call, .sp = (uint64_t)memory};
	CHECK(ptw_unwind(&inside, 0, ours, PTW_MAX_FRAMES) == 1);
	inside.bx = (uint64_t)(memory + 7);
	CHECK(ptw_unwind(&inside, 0, ours, PTW_MAX_FRAMES) == 1);
	inside.bx_known = true;
	CHECK(ptw_unwind(&inside, 0, ours, PTW_MAX_FRAMES) == 2 && ours[1] == (uint64_t)behind_the_call);
}

static void *in_thread(void *unused)
{
	recurse(10);
	return unused;
}

static void frames_of_threads(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
	pthread_join(thread, NULL);
	CHECK(compared == 1);
}

/* Code without call frame information, as made at run time: the stack ends there, and nothing is guessed. */
static void unknown_code_ends_the_stack(void)
{
	uint64_t ours[PTW_MAX_FRAMES], memory[64] = {0};
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ptw_frame inside = {.pc = (uint64_t)code + 16, .sp = (uint64_t)memory};
	CHECK(ptw_unwind(&inside, 0, ours, PTW_MAX_FRAMES) == 1 && ours[0] == inside.pc);
	inside.pc = 0xdeaddeaddeaddead; /* what coroutine libraries leave as a return address */
	CHECK(ptw_unwind(&inside, 0, ours, PTW_MAX_FRAMES) == 1);
}

static void wild_registers_are_not_followed(void)
{
	uint64_t ours[PTW_MAX_FRAMES];
	struct ptw_frame here = PTW_CALLER;
	struct ptw_frame wild = {here.pc, here.sp, 0x123456789abc0, 0x123456789abc0, true};
	CHECK(ptw_unwind(&wild, here.sp + 4096, ours, PTW_MAX_FRAMES) >= 1); /* bounded by the stack's end */
	wild.sp = here.sp + 3;
	CHECK(ptw_unwind(&wild, here.sp + 4096, ours, PTW_MAX_FRAMES) >= 1);
}

static void corrupt_unwind_sections_end_the_stack(void)
{
	unsigned char section[512];
	srand(1);
	for (unsigned round = 0; round < 200000; round++) {
		for (unsigned i = 0; i < sizeof section; i++)
			section[i] = (unsigned char)(rand() >> 7);
		/* a plausible description at 0 and an entry at 64, so that some rounds get far */
		uint32_t words[] = {56, 0};
		memcpy(section, words, sizeof words);
		memcpy(section + 8, "\1zR\0\1\170\20\1\33\14\7\10\220\1", 14);
		uint32_t entry[] = {400, 68};
		memcpy(section + 64, entry, sizeof entry);
		int32_t start = 0, size = 4096;
		memcpy(section + 72, &start, 4);
		memcpy(section + 76, &size, 4);
		section[80] = 0;
		if (round % 4 == 0)
			section[rand() % 90] ^= (unsigned char)(1 << rand() % 8);
		ptw_cfi_rule(section, section + 64, section + sizeof section, (uint64_t)(section + 72) + 100);
	}
}

static void forgetting_changes_nothing(void)
{
	recurse(5);
	ptw_unwind_forget();
	recurse(5);
	CHECK(compared == 2);
}

static bool nothing_is_shared(void)
{
	const uint64_t *words = (const uint64_t *)PTW_META_RULES;
	for (uint64_t i = 0; i < PTW_META_RULES_SIZE / sizeof *words; i++)
		if (words[i])
			return false;
	return true;
}

static void rules_are_shared_but_for_code_of_its_own(void)
{
	CHECK(mmap((void *)PTW_META_RULES, PTW_META_RULES_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)PTW_META_RULES);
	ptw_unwind_share(0, UINT64_MAX);
	recurse(3);
	CHECK(nothing_is_shared());
	ptw_unwind_share(0, 0);
	recurse(3);
	CHECK(!nothing_is_shared());
	ptw_unwind_forget();
	CHECK(nothing_is_shared());
	recurse(3);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(plain_frames),
	CASE(frames_of_libraries),
	CASE(frames_of_variable_size),
	CASE(realigned_frames),
	CASE(frames_below_signal_handlers),
	CASE(frames_that_are_reached_through_rbx),
	CASE(frames_that_are_reached_through_rbx_below_signal_handlers),
	CASE(rbx_that_is_not_known_ends_the_stack),
	CASE(frames_of_threads),
	CASE(unknown_code_ends_the_stack),
	CASE(wild_registers_are_not_followed),
	CASE(corrupt_unwind_sections_end_the_stack),
	CASE(forgetting_changes_nothing),
	CASE(rules_are_shared_but_for_code_of_its_own),
};

int main(int count, char **words)
{
	void *prime[2];
	backtrace(prime, 2); /* loads libgcc before signals come */
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	return 0;
}
