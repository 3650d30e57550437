/* SPDX-License-Identifier: MIT */
/* Two threads on one processor make system calls with the same instruction: one, ROUNDS times, calls that return at once,
 * until it loses its processor, sometimes right before a call; the other, until then, gives it back right behind one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>

static atomic_int over;

__attribute__((noinline)) static void call(long number, long rounds)
{
	while (rounds-- > 0 && !atomic_load(&over)) {
		long result = number;

		__asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
	}
}

static void *give_back(void *unused)
{
	call(SYS_sched_yield, 1L << 62);
	return unused;
}

int main(int argc, char **argv)
{
	cpu_set_t one;
	pthread_t other;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one) || pthread_create(&other, NULL, give_back, NULL))
		return 1;
	call(SYS_getppid, argc > 1 ? atol(argv[1]) : 1000);
	atomic_store(&over, 1);
	return pthread_join(other, NULL) != 0;
}
