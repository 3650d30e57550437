/* SPDX-License-Identifier: MIT */
/*
 * Threads that make threads, one within the other, while main calls a function as often as it can: nested_hits DEPTH.
 * How often everybody called it is printed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_ulong calls;
static atomic_int done;

__attribute__((noinline)) unsigned long struck(unsigned long number)
{
	return atomic_fetch_add(&calls, 1) ^ number;
}

static void *nest(void *left)
{
	pthread_t next;
	struck((uintptr_t)left);
	if ((uintptr_t)left > 1 && pthread_create(&next, NULL, nest, (void *)((uintptr_t)left - 1)) == 0)
		pthread_join(next, NULL);
	struck((uintptr_t)left);
	return NULL;
}

static void *root(void *depth)
{
	nest(depth);
	done = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t first;
	void *depth = (void *)(uintptr_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 8);
	if (pthread_create(&first, NULL, root, depth) != 0)
		return 1;
	while (!done)
		struck(0);
	pthread_join(first, NULL);
	printf("%lu\n", calls);
	return 0;
}
