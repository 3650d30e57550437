/* SPDX-License-Identifier: MIT */
/* A program's own SIGSEGV handler gets the faults of its own protection, with the address, and can go on. */
#include "promise.h"

static char *memory;
static volatile int faults;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	PROMISE((char *)info->si_addr >= memory && (char *)info->si_addr < memory + 8 * PAGE);
	PROMISE(info->si_code == SEGV_ACCERR);
	faults++;
	mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static void *touch(void *argument)
{
	long from = (long)argument;
	for (long page = from; page < from + 4; page++)
		memory[page * PAGE + 100] += 1;
	return NULL;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	memory = untouched(8);
	memset(memory, 1, 8 * PAGE);
	sigaction(SIGSEGV, &action, NULL);
	PROMISE(mprotect(memory, 8 * PAGE, PROT_READ) == 0);
	touch((void *)0);
	PROMISE(faults == 4);
	in_thread(touch, (void *)4);
	PROMISE(faults == 8);
	for (int i = 0; i < 8; i++)
		PROMISE(memory[i * PAGE + 100] == 2 && memory[i * PAGE] == 1);
	return 0;
}
