/* SPDX-License-Identifier: MIT */
/* Threads create threads that create threads, seven deep, and every one is joined by its creator. */
#include "promise.h"

static void *tree(void *argument)
{
	uintptr_t depth = (uintptr_t)argument, sum = 1;
	pthread_t children[2];
	if (depth == 0)
		return (void *)1;
	for (int i = 0; i < 2; i++)
		children[i] = start(tree, (void *)(depth - 1));
	for (int i = 0; i < 2; i++)
		sum += (uintptr_t)join(children[i]);
	return (void *)sum;
}

int main(void)
{
	PROMISE((uintptr_t)tree((void *)5) == 63);
	uintptr_t chain = 0;
	for (int i = 0; i < 3; i++)
		chain += (uintptr_t)in_thread(tree, (void *)2);
	PROMISE(chain == 21);
	return 0;
}
