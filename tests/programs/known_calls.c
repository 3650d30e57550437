/* SPDX-License-Identifier: MIT */
/* Calls whose numbers are known: recursion, tail calls, longjmp, signals that return and signals that do not. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KEEP __attribute__((noinline, noclone))

static volatile int sink;
static jmp_buf env;
static sigjmp_buf signal_env;
static char *page;

KEEP int fib(int n)
{
	sink++;
	if (n < 2)
		return n;
	const int a = fib(n - 1);

	return a + fib(n - 2);
}

KEEP int leaf(int x)
{
	sink += x;
	return x + 1;
}

KEEP __attribute__((optimize("optimize-sibling-calls"))) int tail(int x)
{
	sink++;
	return leaf(x * 2);
}

KEEP void thrower(int depth)
{
	sink++;
	if (!depth)
		longjmp(env, 1);
	thrower(depth - 1);
	sink++;
}

KEEP void catcher(void)
{
	if (!setjmp(env))
		thrower(5);
	leaf(1);
}

KEEP void on_segv(int number)
{
	(void)number;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

KEEP void touch(void)
{
	mprotect(page, 4096, PROT_NONE);
	page[0] = 1;
	leaf(2);
}

KEEP void on_segv2(int number)
{
	(void)number;
	siglongjmp(signal_env, 1);
}

KEEP void jumpout(void)
{
	if (!sigsetjmp(signal_env, 1))
		*(volatile int *)8 = 1;
	leaf(3);
}

KEEP void on_usr(int number)
{
	(void)number;
	sink++;
}

KEEP int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

KEEP void sorter(void)
{
	int values[64];

	for (int i = 0; i < 64; i++)
		values[i] = (i * 37) % 64;
	qsort(values, 64, sizeof(*values), compare);
}

static void handle(int number, void (*handler)(int))
{
	const struct sigaction action = { .sa_handler = handler };

	sigaction(number, &action, NULL);
}

int main(void)
{
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fib(15);
	for (int i = 0; i < 10; i++)
		tail(i);
	for (int i = 0; i < 3; i++)
		catcher();
	handle(SIGSEGV, on_segv);
	for (int i = 0; i < 4; i++)
		touch();
	handle(SIGSEGV, on_segv2);
	for (int i = 0; i < 2; i++)
		jumpout();
	handle(SIGUSR1, on_usr);
	for (int i = 0; i < 7; i++)
		raise(SIGUSR1);
	sorter();
	return 0;
}
