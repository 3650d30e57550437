/* SPDX-License-Identifier: MIT */
/* Contexts lie anywhere, their signal masks in pages nobody has touched; a thread switches between them. */
#include "fresh.h"

#include <ucontext.h>

static ucontext_t *outer, *inner;
static _Thread_local int steps;

static void step(void)
{
	steps++;
	PROMISE(swapcontext(inner, outer) == 0);
	steps++;
}

static void body(char *memory)
{
	enum { STACK = 64 << 10 };
	char *stack = malloc(STACK);
	outer = (ucontext_t *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
	inner = outer + 2;
	steps = 0;
	PROMISE(getcontext(inner) == 0);
	inner->uc_stack.ss_sp = stack;
	inner->uc_stack.ss_size = STACK;
	inner->uc_link = outer;
	makecontext(inner, step, 0);
	PROMISE(swapcontext(outer, inner) == 0 && steps == 1);
	PROMISE(swapcontext(outer, inner) == 0 && steps == 2);
	free(stack);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
