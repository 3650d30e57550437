/* SPDX-License-Identifier: MIT */
/* A function within another, whose address is taken, is called through code on the stack (a trampoline): in any thread,
 * by another thread, and when the place was used for something else before. */
#include "promise.h"

typedef int (*function)(int);

static __attribute__((noinline)) int call(function one, int value) { return one(value); }

static void *call_for_other(void *one)
{
	PROMISE(call(*(function *)one, 5) == 12);
	return NULL;
}

static __attribute__((noinline)) int use_stack(int depth)
{
	volatile int room[512];
	for (int i = 0; i < 512; i++)
		room[i] = depth;
	return depth ? use_stack(depth - 1) + room[7] : 0;
}

static void *nest(void *depth)
{
	int offset = *(int *)depth, calls = 0;
	int add(int value)
	{
		calls++;
		return value + offset;
	}
	function one = add;
	PROMISE(call(add, 1) == 1 + offset && calls == 1);
	if (offset == 7)
		in_thread(call_for_other, &one);
	if (offset > 0) {
		int less = offset - 1;
		PROMISE(use_stack(offset) >= 0);
		nest(&less);
	}
	PROMISE(call(add, 2) == 2 + offset && calls == (offset == 7 ? 3 : 2));
	return depth;
}

int main(void)
{
	int depth = 12;
	nest(&depth);
	in_thread(nest, &depth);
	pthread_t first = start(nest, &depth), second = start(nest, &depth);
	join(first);
	join(second);
	return 0;
}
