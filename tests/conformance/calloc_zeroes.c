/* SPDX-License-Identifier: MIT */
/* calloc gives zeroes also where memory was used before, by this thread or by others. */
#include "promise.h"

static void *dirty(void *unused)
{
	void *blocks[200];
	for (int i = 0; i < 200; i++) {
		blocks[i] = malloc((size_t)i * 50 + 1);
		memset(blocks[i], 0xff, (size_t)i * 50 + 1);
	}
	for (int i = 0; i < 200; i++)
		free(blocks[i]);
	return unused;
}

static void *check(void *unused)
{
	void *blocks[200];
	for (int i = 0; i < 200; i++) {
		char *block = blocks[i] = calloc(1, (size_t)i * 50 + 1);
		for (int k = 0; k <= i * 50; k++)
			PROMISE(block[k] == 0);
	}
	for (int i = 0; i < 200; i++)
		free(blocks[i]);
	return unused;
}

int main(void)
{
	for (int i = 0; i < 3; i++) {
		dirty(NULL);
		check(NULL);
		in_thread(dirty, NULL);
		in_thread(check, NULL);
		check(NULL);
	}
	return 0;
}
