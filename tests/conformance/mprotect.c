/* SPDX-License-Identifier: MIT */
/* A protection that one thread sets holds for all threads, and is told by a fault of any. */
#include "promise.h"

#include <setjmp.h>

static char *memory;
static sigjmp_buf out;
static struct gate gate = GATE;

static void handler(int number) { siglongjmp(out, number); }

static int faults(int write)
{
	if (sigsetjmp(out, 1))
		return 1;
	if (write)
		*(volatile char *)memory = 1;
	else
		(void)*(volatile char *)memory;
	return 0;
}

static void *look(void *unused)
{
	PROMISE(!faults(0) && !faults(1));
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(!faults(0) && faults(1));
	gate_open(&gate, 3);
	gate_wait(&gate, 4);
	PROMISE(faults(0) && faults(1));
	gate_open(&gate, 5);
	gate_wait(&gate, 6);
	PROMISE(!faults(0) && !faults(1));
	return unused;
}

int main(void)
{
	memory = untouched(2);
	signal(SIGSEGV, handler);
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	PROMISE(mprotect(memory, PAGE, PROT_READ) == 0);
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(mprotect(memory, PAGE, PROT_NONE) == 0);
	gate_open(&gate, 4);
	gate_wait(&gate, 5);
	PROMISE(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
	gate_open(&gate, 6);
	join(thread);
	return 0;
}
