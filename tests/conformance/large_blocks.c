/* SPDX-License-Identifier: MIT */
/* Blocks of many megabytes can be allocated, used by all threads, and freed over and over without running out. */
#include "promise.h"

enum { SIZE = 64 << 20 };

static void *touch(void *block)
{
	for (size_t i = 0; i < SIZE; i += 65536)
		((char *)block)[i] += 1;
	return NULL;
}

int main(void)
{
	for (int round = 0; round < 50; round++) {
		char *block = calloc(1, SIZE);
		PROMISE(block);
		in_thread(touch, block);
		touch(block);
		PROMISE(block[0] == 2 && block[65536] == 2);
		free(block);
	}
	return 0;
}
