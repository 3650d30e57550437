/* SPDX-License-Identifier: MIT */
/* A thread's stack may begin and end anywhere; what lies beside it on its pages is everybody's, as before. */
#include "promise.h"

enum { SIZE = 128 * 1024, BESIDE = 40 };

static char *memory;

static void *use(void *unused)
{
	volatile char local[8192];
	memset((char *)local, 1, sizeof local);
	PROMISE((char *)local > memory + BESIDE && (char *)local < memory + BESIDE + SIZE);
	memory[0]++;
	memory[2 * BESIDE + SIZE - 1]++;
	return unused;
}

int main(void)
{
	const size_t size = SIZE + 2 * BESIDE;
	for (int off = 0; off < 3; off++) {
		pthread_attr_t attributes;
		pthread_t thread;
		char *given = malloc(size + PAGE);
		memory = given + 16 * off + 1;
		memset(memory, 7, size);
		pthread_attr_init(&attributes);
		PROMISE(pthread_attr_setstack(&attributes, memory + BESIDE, SIZE) == 0);
		PROMISE(pthread_create(&thread, &attributes, use, NULL) == 0);
		memory[1]++;
		join(thread);
		PROMISE(memory[0] == 8 && memory[1] == 8 && memory[2] == 7 && memory[size - 1] == 8 && memory[size - 2] == 7);
		pthread_attr_destroy(&attributes);
		free(given);
	}
	return 0;
}
