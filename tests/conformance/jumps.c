/* SPDX-License-Identifier: MIT */
/* setjmp, longjmp, and contexts work within each of several threads. */
#include "promise.h"

#include <setjmp.h>
#include <ucontext.h>

static __thread ucontext_t home, away;
static __thread int visits;

static void visit(void)
{
	for (;;) {
		visits++;
		swapcontext(&away, &home);
	}
}

static void *run(void *unused)
{
	jmp_buf point;
	volatile int jumps = 0;
	if (setjmp(point) < 5) {
		jumps++;
		longjmp(point, jumps);
	}
	PROMISE(jumps == 5);
	char *stack = malloc(65536);
	getcontext(&away);
	away.uc_stack.ss_sp = stack, away.uc_stack.ss_size = 65536;
	makecontext(&away, visit, 0);
	for (int i = 0; i < 10; i++)
		swapcontext(&home, &away);
	PROMISE(visits == 10);
	free(stack);
	return unused;
}

int main(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		threads[i] = start(run, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	run(NULL);
	return 0;
}
