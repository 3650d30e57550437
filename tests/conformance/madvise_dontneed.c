/* SPDX-License-Identifier: MIT */
/* MADV_DONTNEED by one thread makes private anonymous memory zero for all threads. */
#include "promise.h"

static char *memory;

static void *drop(void *unused)
{
	PROMISE(memory[PAGE] == 7);
	PROMISE(madvise(memory + PAGE, PAGE, MADV_DONTNEED) == 0);
	PROMISE(memory[PAGE] == 0 && memory[0] == 7);
	return unused;
}

int main(void)
{
	memory = untouched(3);
	memset(memory, 7, 3 * PAGE);
	in_thread(drop, NULL);
	PROMISE(memory[0] == 7 && memory[PAGE] == 0 && memory[2 * PAGE - 1] == 0 && memory[2 * PAGE] == 7);
	return 0;
}
