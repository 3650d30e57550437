/* SPDX-License-Identifier: MIT */
/* Memory that one thread unmaps is gone for all; what is mapped there next begins with zeroes in all. */
#include "promise.h"

#include <setjmp.h>

static char *memory;
static sigjmp_buf out;
static struct gate gate = GATE;

static void handler(int number) { siglongjmp(out, number); }

static void *look(void *unused)
{
	memory[0] = 1, memory[PAGE] = 1;
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	if (sigsetjmp(out, 1) == 0) {
		memory[0] = 2;
		broken("unmapped memory faults", __func__, __LINE__);
	}
	PROMISE(memory[PAGE] == 1);
	gate_open(&gate, 3);
	gate_wait(&gate, 4);
	PROMISE(memory[0] == 0 && memory[PAGE] == 1);
	memory[0] = 5;
	return unused;
}

int main(void)
{
	memory = untouched(2);
	signal(SIGSEGV, handler);
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	PROMISE(munmap(memory, PAGE) == 0);
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(mmap(memory, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
	gate_open(&gate, 4);
	join(thread);
	PROMISE(memory[0] == 5);
	return 0;
}
