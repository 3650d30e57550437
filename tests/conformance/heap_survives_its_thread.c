/* SPDX-License-Identifier: MIT */
/* Blocks live on after the thread that allocated them has ended, and later threads do not get them. */
#include "promise.h"

enum { COUNT = 300 };

static char *blocks[COUNT];

static void *allocate(void *argument)
{
	long from = (long)argument;
	for (long i = from; i < from + COUNT / 3; i++) {
		blocks[i] = malloc(64 + (size_t)i);
		memset(blocks[i], (int)i, 64 + (size_t)i);
	}
	return NULL;
}

int main(void)
{
	for (long third = 0; third < 3; third++)
		in_thread(allocate, (void *)(third * (COUNT / 3)));
	for (int i = 0; i < COUNT; i++) {
		for (size_t k = 0; k < 64 + (size_t)i; k++)
			PROMISE(blocks[i][k] == (char)i);
		free(blocks[i]);
	}
	return 0;
}
