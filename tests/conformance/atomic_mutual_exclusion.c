/* SPDX-License-Identifier: MIT */
/* A lock of the program's own, made of atomics alone, excludes. */
#include "promise.h"

#include <sched.h>
#include <stdatomic.h>

static atomic_flag lock = ATOMIC_FLAG_INIT;
static long counter[2 * PAGE / sizeof(long)];

static void *add(void *unused)
{
	for (int i = 0; i < 5000; i++) {
		while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
			sched_yield();
		counter[0]++;
		counter[PAGE / sizeof(long)]++;
		atomic_flag_clear_explicit(&lock, memory_order_release);
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
	PROMISE(counter[0] == 20000 && counter[PAGE / sizeof(long)] == 20000);
	return 0;
}
