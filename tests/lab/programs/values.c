/* SPDX-License-Identifier: MIT */
/* ptlab: also static. Writes ROUNDS values into its own trace (PTWRITE), and computes between them. */
#include <stdlib.h>

static volatile long sink;

static void trace(unsigned long value)
{
	__asm__ volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0" : : "a"(value)); /* ptwrite %rax */
}

static void trace_half(unsigned int value)
{
	__asm__ volatile(".byte 0xf3, 0x0f, 0xae, 0xe1" : : "c"(value)); /* ptwrite %ecx */
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 100;

	for (long i = 0; i < rounds; i++) {
		trace(0x1122334400000000ul + (unsigned long)i);
		for (int k = 0; k < 20; k++)
			sink += (k ^ i) % 3;
		trace_half((unsigned int)i * 3);
	}
	return 0;
}
