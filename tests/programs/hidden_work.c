// SPDX-License-Identifier: MIT
/*
 * A library to be stripped: what is exported ends in a jump to what is hidden. As a program (with PROGRAM): calls it,
 * hidden_work ROUNDS, and prints what came of it.
 */
#include <stdio.h>
#include <stdlib.h>

long outer(const char *text, long size);
long straight(const char *text, long size);
long either(long size);
int leaves(const char *text);

#ifndef PROGRAM

#define HIDDEN __attribute__((visibility("hidden"), noinline))

HIDDEN long work(const char *text, long size)
{
	long sum = 0;

	for (long i = 0; i < size; i++)
		sum += text[i % 4] * i;
	return sum;
}

HIDDEN long other_work(const char *text, long size)
{
	return size > 1000 ? text[0] : work(text, size) + 1;
}

long outer(const char *text, long size)
{
	return work(text, size + 1);
}

long straight(const char *text, long size)
{
	return work(text, size) + 2;
}

long either(long size)
{
	static volatile int which;

	if (which)
		return work("either", size);
	which = 1;
	return other_work("either", size);
}

int leaves(const char *text)
{
	return puts(text);
}

#else

int main(int argc, char **argv)
{
	/* in memory that is there before it is used: a probe reads no page that is not */
	char word[] = "word", other[] = "straight";
	long rounds = argc > 1 ? atol(argv[1]) : 1;

	for (long i = 0; i < rounds; i++)
		printf("%ld ", outer(word, i));
	printf("%ld\n", straight(other, 7));
	return 0;
}

#endif
