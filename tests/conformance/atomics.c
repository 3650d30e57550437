/* SPDX-License-Identifier: MIT */
/* Atomic increments, exchanges and comparisons of several threads on one word lose nothing. */
#include "promise.h"

#include <stdatomic.h>

enum { TIMES = 100000 };

static atomic_long counter, by_exchange;
static atomic_uchar byte;

static void *add(void *unused)
{
	for (int i = 0; i < TIMES; i++) {
		atomic_fetch_add(&counter, 3);
		atomic_fetch_add(&byte, 1);
		long seen = atomic_load(&by_exchange);
		while (!atomic_compare_exchange_weak(&by_exchange, &seen, seen + 1))
			;
	}
	return unused;
}

int main(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		threads[i] = start(add, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(counter == 12L * TIMES && by_exchange == 4L * TIMES && byte == (unsigned char)(4 * TIMES));
	return 0;
}
