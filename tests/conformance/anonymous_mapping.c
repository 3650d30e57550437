/* SPDX-License-Identifier: MIT */
/* A private anonymous mapping made by any thread is one memory for all threads, also for those that run
 * already. */
#include "promise.h"

static char *memory;
static struct gate gate = GATE;

static void *early(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(memory[0] == 1 && memory[9 * PAGE] == 2 && memory[5 * PAGE] == 0);
	memory[5 * PAGE] = 3;
	return unused;
}

static void *map(void *unused)
{
	memory = untouched(10);
	memory[0] = 1;
	return unused;
}

int main(void)
{
	pthread_t thread = start(early, NULL);
	in_thread(map, NULL);
	memory[9 * PAGE] = 2;
	gate_open(&gate, 1);
	join(thread);
	PROMISE(memory[5 * PAGE] == 3);
	PROMISE(munmap(memory, 10 * PAGE) == 0);
	return 0;
}
