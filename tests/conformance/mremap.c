/* SPDX-License-Identifier: MIT */
/* mremap grows, moves and shrinks a mapping with its contents, for all threads. */
#include "promise.h"

static char *memory;

static void *check(void *pages)
{
	for (long i = 0; i < (long)pages; i++)
		PROMISE(memory[i * PAGE] == (char)(i + 1));
	return NULL;
}

static void *grow(void *unused)
{
	memory = mremap(memory, 4 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
	PROMISE(memory != MAP_FAILED);
	for (int i = 4; i < 400; i++)
		memory[i * PAGE] = (char)(i + 1);
	return unused;
}

int main(void)
{
	memory = untouched(4);
	for (int i = 0; i < 4; i++)
		memory[i * PAGE] = (char)(i + 1);
	in_thread(check, (void *)4);
	in_thread(grow, NULL);
	check((void *)400);
	PROMISE(mremap(memory, 400 * PAGE, 2 * PAGE, 0) == memory);
	in_thread(check, (void *)2);
	return 0;
}
