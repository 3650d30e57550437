/* SPDX-License-Identifier: MIT */
/* A thread runs on the memory that pthread_attr_setstack gave, and that memory is the program's again after
 * join. */
#include "promise.h"

enum { SIZE = 256 * 1024 };

static char *memory;

static void *look(void *unused)
{
	volatile char local = 1;
	PROMISE((char *)&local > memory && (char *)&local < memory + SIZE);
	return unused;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	memory = aligned_alloc(PAGE, SIZE);
	for (int round = 0; round < 3; round++) {
		memset(memory, round, SIZE);
		pthread_attr_init(&attributes);
		PROMISE(pthread_attr_setstack(&attributes, memory, SIZE) == 0);
		PROMISE(pthread_create(&thread, &attributes, look, NULL) == 0);
		join(thread);
		pthread_attr_destroy(&attributes);
		PROMISE(memory[0] == round);
	}
	free(memory);
	return 0;
}
