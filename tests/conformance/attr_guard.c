/* SPDX-License-Identifier: MIT */
/* A thread is told the guard that its stack has: a page by default, as much as asked for, none on memory of the
 * program. What overflows the stack faults there. */
#include "promise.h"

#include <setjmp.h>

enum { GUARD = 5 * 4096, STACK = 1 << 20, LARGE = 20 << 20, ROOM = 65536 };

static sigjmp_buf out;
static uintptr_t fault;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	fault = (uintptr_t)info->si_addr;
	siglongjmp(out, number);
}

static int dive(volatile char *above)
{
	volatile char local[512];
	local[0] = above[0];
	local[1] = 0; /* what lay there may be anything */
	return above[1] == 77 ? 0 : dive(local) + local[1];
}

static void *told(void *guard)
{
	pthread_attr_t attributes;
	size_t size = 1, length = 0;
	void *low = NULL;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getguardsize(&attributes, &size) == 0);
	PROMISE(pthread_attr_getstack(&attributes, &low, &length) == 0 && low != NULL);
	PROMISE(size == (size_t)guard);
	pthread_attr_destroy(&attributes);
	if (size == 0)
		return NULL;
	volatile char first[2] = {0};
	stack_t mine = {.ss_sp = untouched(ROOM / PAGE), .ss_size = ROOM};
	PROMISE(sigaltstack(&mine, NULL) == 0);
	if (sigsetjmp(out, 1) == 0)
		dive(first);
	/* older C libraries count the guard as part of the stack */
	PROMISE(fault >= (uintptr_t)low - size && fault < (uintptr_t)low + size);
	return NULL;
}

static void with(const pthread_attr_t *attributes, size_t guard)
{
	pthread_t thread;
	PROMISE(pthread_create(&thread, attributes, told, (void *)guard) == 0);
	join(thread);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
	pthread_attr_t attributes;
	sigaction(SIGSEGV, &action, NULL);
	with(NULL, PAGE);
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setguardsize(&attributes, GUARD) == 0);
	with(&attributes, GUARD);
	PROMISE(pthread_attr_setstacksize(&attributes, LARGE) == 0);
	with(&attributes, GUARD);
	PROMISE(pthread_attr_setstack(&attributes, untouched(STACK / PAGE), STACK) == 0);
	with(&attributes, 0);
	return 0;
}
