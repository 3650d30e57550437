/* SPDX-License-Identifier: MIT */
/* An alternate signal stack is a thread's own, is not inherited, and its handler runs on it. */
#include "promise.h"

enum { SIZE = 65536 };

static volatile uintptr_t handler_local;

static void handler(int number)
{
	volatile char local = (char)number;
	handler_local = (uintptr_t)&local;
}

static void *use(void *unused)
{
	stack_t before, mine = {.ss_sp = untouched(SIZE / PAGE), .ss_size = SIZE};
	PROMISE(sigaltstack(NULL, &before) == 0 && before.ss_flags == SS_DISABLE);
	PROMISE(sigaltstack(&mine, NULL) == 0);
	raise(SIGUSR1);
	PROMISE(handler_local - (uintptr_t)mine.ss_sp < SIZE);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	stack_t mine = {.ss_sp = untouched(SIZE / PAGE), .ss_size = SIZE}, now;
	sigaction(SIGUSR1, &action, NULL);
	PROMISE(sigaltstack(&mine, NULL) == 0);
	in_thread(use, NULL);
	PROMISE(sigaltstack(NULL, &now) == 0 && now.ss_sp == mine.ss_sp);
	raise(SIGUSR1);
	PROMISE(handler_local - (uintptr_t)mine.ss_sp < SIZE);
	return 0;
}
