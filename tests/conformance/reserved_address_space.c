/* SPDX-License-Identifier: MIT */
/* A hundred GiB of address space are reserved at once and used here and there by several threads; a part that was
 * reserved without access is given it later, for all. */
#include "promise.h"

#define LARGE (100ul << 30)

static char *memory, *reserved;
static struct gate gate = GATE;

static void *use(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(memory[0] == 1 && memory[LARGE - 1] == 2 && memory[LARGE / 2] == 0);
	memory[LARGE / 2] = 3;
	PROMISE(reserved[5 * PAGE] == 4);
	reserved[6 * PAGE] = 5;
	return unused;
}

int main(void)
{
	pthread_t thread = start(use, NULL);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	reserved = mmap(NULL, LARGE, PROT_NONE, flags, -1, 0);
	PROMISE(memory != MAP_FAILED && reserved != MAP_FAILED);
	PROMISE(reserved + LARGE <= memory || memory + LARGE <= reserved);
	memory[0] = 1, memory[LARGE - 1] = 2;
	PROMISE(mprotect(reserved + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	reserved[5 * PAGE] = 4;
	gate_open(&gate, 1);
	join(thread);
	PROMISE(memory[LARGE / 2] == 3 && reserved[6 * PAGE] == 5);
	PROMISE(munmap(memory, LARGE) == 0 && munmap(reserved, LARGE) == 0);
	return 0;
}
