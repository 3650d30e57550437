/* SPDX-License-Identifier: MIT */
/* A program that calls futex itself, for a lock of its own, works. */
#include "promise.h"

#include <linux/futex.h>

static int word;
static long counter;

static void lock(void)
{
	int seen = 0;
	if (__atomic_compare_exchange_n(&word, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(&word, 2, __ATOMIC_ACQUIRE) != 0)
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static void unlock(void)
{
	if (__atomic_exchange_n(&word, 0, __ATOMIC_RELEASE) == 2)
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *add(void *unused)
{
	for (int i = 0; i < 3000; i++) {
		lock();
		counter++;
		if (i % 500 == 0)
			sleep_ms(1);
		unlock();
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
	PROMISE(counter == 12000);
	return 0;
}
