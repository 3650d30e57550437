/* SPDX-License-Identifier: MIT */
/* A thread that waits for a flag in memory without any call sees it when another thread writes it. */
#include "promise.h"

#include <sched.h>
#include <stdatomic.h>

static atomic_int flag;
static int message;

static void *answer(void *unused)
{
	while (atomic_load_explicit(&flag, memory_order_acquire) != 1)
		sched_yield();
	PROMISE(message == 5);
	message = 6;
	atomic_store_explicit(&flag, 2, memory_order_release);
	return unused;
}

int main(void)
{
	for (int round = 0; round < 20; round++) {
		pthread_t thread = start(answer, NULL);
		message = 5;
		atomic_store_explicit(&flag, 1, memory_order_release);
		while (atomic_load_explicit(&flag, memory_order_acquire) != 2)
			sched_yield();
		PROMISE(message == 6);
		join(thread);
		atomic_store(&flag, 0);
	}
	return 0;
}
