/* SPDX-License-Identifier: MIT */
/* A stack overflow in a thread runs a SIGSEGV handler on the alternate stack, which can leave by siglongjmp. */
#include "promise.h"

#include <setjmp.h>

enum { SIZE = 65536 };

static sigjmp_buf out;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	PROMISE(info->si_addr != NULL);
	siglongjmp(out, number);
}

static int dive(volatile char *above)
{
	volatile char local[512];
	local[0] = above[0];
	local[1] = 0; /* what lay there may be anything */
	return above[1] == 77 ? 0 : dive(local) + local[1];
}

static void *overflow(void *unused)
{
	stack_t mine = {.ss_sp = untouched(SIZE / PAGE), .ss_size = SIZE};
	volatile char first[2] = {0};
	PROMISE(sigaltstack(&mine, NULL) == 0);
	if (sigsetjmp(out, 1) == 0)
		dive(first);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL);
	for (int i = 0; i < 3; i++)
		in_thread(overflow, NULL);
	return 0;
}
