/* SPDX-License-Identifier: MIT */
/*
 * Code for others to plant breakpoints in: calls `work`, jumps to the middle of a loop, divides, takes traps of its own.
 * Says the first bytes of `work` as they are in its memory, and what came of it all. Two threads. With an argument it
 * changes its root to that folder, and its user, before that. Begins when it is told a line.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 300 };

static _Atomic int traps;
static __thread unsigned sum;

__attribute__((noinline, noclone)) unsigned work(unsigned x)
{
	unsigned ret = 1;

	for (unsigned i = 0; i < x % 7; i++)
		ret = ret * 31 + x / (i + 1);
	return ret;
}

static void trapped(int number)
{
	(void)number;
	traps++;
}

/* A trap of the program's own, in its file. */
__attribute__((noinline, noclone)) void own_trap(void)
{
	__asm__ volatile("int3");
}

static void *run(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < ROUNDS; i++) {
		sum += work(i);
		if (i % 100 == 0)
			own_trap();
	}
	return (void *)(unsigned long)sum;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *other;

	if (argc > 1 && (chroot(argv[1]) || setgid(65534) || setuid(65534)))
		return 2;
	puts("up");
	fflush(stdout);
	if (getchar() == EOF)
		return 3;
	signal(SIGTRAP, trapped);
	if (pthread_create(&thread, NULL, run, NULL))
		return 1;
	run(NULL);
	pthread_join(thread, &other);
	printf("%u %lu %d\n", sum, (unsigned long)other, traps);
	fprintf(stderr, "%02x\n", *(const volatile unsigned char *)work);
	return 0;
}
