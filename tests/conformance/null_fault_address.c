/* SPDX-License-Identifier: MIT */
/* A SIGSEGV handler of the program gets the address of a wild access of another thread, with SEGV_MAPERR. */
#include "promise.h"

#include <setjmp.h>

static sigjmp_buf out;
static void *volatile address;
static volatile int code;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	address = info->si_addr;
	code = info->si_code;
	siglongjmp(out, number);
}

static void *wild(void *argument)
{
	if (sigsetjmp(out, 1) == 0)
		*(volatile char *)argument = 1;
	PROMISE(address == argument && code == SEGV_MAPERR);
	return NULL;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL);
	in_thread(wild, (void *)0x10);
	in_thread(wild, (void *)0x5008);
	wild((void *)0x18);
	return 0;
}
