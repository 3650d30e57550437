/* SPDX-License-Identifier: MIT */
/* A System V memory segment that one thread attached is memory for all threads. */
#include "promise.h"

#include <sys/shm.h>

static char *memory;
static struct gate gate = GATE;

static void *use(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(memory[0] == 1);
	memory[5 * PAGE] = 2;
	return unused;
}

int main(void)
{
	pthread_t thread = start(use, NULL);
	int segment = shmget(IPC_PRIVATE, 8 * PAGE, IPC_CREAT | 0600);
	PROMISE(segment >= 0);
	memory = shmat(segment, NULL, 0);
	PROMISE(shmctl(segment, IPC_RMID, NULL) == 0 && memory != (char *)-1);
	memory[0] = 1;
	gate_open(&gate, 1);
	join(thread);
	PROMISE(memory[5 * PAGE] == 2 && shmdt(memory) == 0);
	return 0;
}
