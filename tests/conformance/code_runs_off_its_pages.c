/* SPDX-License-Identifier: MIT */
/* Generated code that runs over the end of its memory, between instructions or in the midst of one, is a fault there: of
 * the address that cannot be read, at the instruction that has it. What ends in time is none. */
#include "promise.h"

#include <setjmp.h>
#include <ucontext.h>

typedef void (*function)(void);

static unsigned char *code, *fault, *instruction;
static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *data)
{
	PROMISE(number == SIGSEGV);
	fault = (unsigned char *)info->si_addr;
	instruction = (unsigned char *)((ucontext_t *)data)->uc_mcontext.gregs[REG_RIP];
	siglongjmp(back, 1);
}

/* Whether it returned. */
static int returns(unsigned char *place)
{
	function run;
	memcpy(&run, &place, sizeof run);
	if (sigsetjmp(back, 1))
		return 0;
	run();
	return 1;
}

/* Code of one page, nops and then these bytes; behind it is what cannot be read. */
static unsigned char *write_code(const unsigned char *bytes, size_t size, int unmap)
{
	unsigned char *memory = (unsigned char *)untouched(2);
	memset(memory, 0x90, PAGE);
	memcpy(memory + PAGE - size, bytes, size);
	PROMISE(mprotect(memory, PAGE, PROT_READ | PROT_EXEC) == 0);
	PROMISE((unmap ? munmap(memory + PAGE, PAGE) : mprotect(memory + PAGE, PAGE, PROT_NONE)) == 0);
	return memory;
}

static void *run(void *unused)
{
	static const unsigned char ret[] = {0xc3}, nop[] = {0x90}, half_move[] = {0x48, 0xb8, 0x11};
	for (int unmap = 0; unmap < 2; unmap++) {
		code = write_code(ret, sizeof ret, unmap);
		PROMISE(returns(code) && returns(code + PAGE - 1) && returns(code + PAGE - 3));
		code = write_code(nop, sizeof nop, unmap);
		PROMISE(!returns(code + PAGE - 5) && fault == code + PAGE && instruction == code + PAGE);
		code = write_code(half_move, sizeof half_move, unmap);
		PROMISE(!returns(code + PAGE - 5) && fault == code + PAGE && instruction == code + PAGE - 3);
		PROMISE(!returns(code + PAGE - 3) && fault == code + PAGE && instruction == code + PAGE - 3);
	}
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	PROMISE(sigaction(SIGSEGV, &action, NULL) == 0);
	run(NULL);
	in_thread(run, NULL);
	return 0;
}
