/* SPDX-License-Identifier: MIT */
/* Returns to places that no call came from, with next to nothing between them: three bytes of packets each, for little
 * more than one instruction. */
#ifndef JUMPS_H
#define JUMPS_H

#define JUMPS_PLACES 1021 /* then they repeat: no number of pages holds a whole number of repetitions */
#define JUMPS_A_ROUND 4

/* A stack that holds nothing but where to return to, the last of all to who called. No signal may be handled on it. */
static const char *jumps_stack[JUMPS_PLACES + 1];

/* From this place of the stack to its end; returns what they made of x. */
unsigned jumps_from(const char *const *place, unsigned x);
extern const char jumps_first[], jumps_second[], jumps_third[], jumps_fourth[], jumps_end[];
asm(".pushsection .text\n"
    "jumps_from:\n"
    "	movl %esi, %eax\n"
    "	movq %rsp, %rdx\n"
    "	movq %rdi, %rsp\n"
    "jumps_first:\n"
    "	ret\n"
    "jumps_second:\n"
    "	ret\n"
    "jumps_third:\n"
    "	leal 3(%rax, %rax, 4), %eax\n"
    "	ret\n"
    "jumps_fourth:\n"
    "	leal 1(%rax, %rax, 8), %eax\n"
    "	ret\n"
    "jumps_end:\n"
    "	movq %rdx, %rsp\n"
    "	ret\n"
    ".popsection\n");

static void jumps_prepare(void)
{
	const char *const places[] = { jumps_first, jumps_second, jumps_third, jumps_fourth };
	unsigned x = 12345;

	for (int i = 0; i < JUMPS_PLACES; i++) {
		x = x * 1664525 + 1013904223;
		jumps_stack[i] = places[x >> 30];
	}
	jumps_stack[JUMPS_PLACES] = jumps_end;
}

static unsigned jumps(long rounds)
{
	long count = rounds * JUMPS_A_ROUND;
	unsigned x = 12345;

	if (!jumps_stack[0])
		jumps_prepare();
	for (; count > JUMPS_PLACES; count -= JUMPS_PLACES)
		x = jumps_from(jumps_stack, x);
	return jumps_from(jumps_stack + JUMPS_PLACES - count, x);
}

#endif
