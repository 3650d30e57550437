/* SPDX-License-Identifier: MIT */
/* realloc keeps the contents when it enlarges and shrinks, across threads and sizes; realloc(NULL) allocates. */
#include "promise.h"

static char *block;
static size_t size = 1;

static void *resize(void *argument)
{
	size_t next = (size_t)argument, kept = next < size ? next : size;
	char *moved = realloc(block, next);
	PROMISE(moved);
	for (size_t i = 0; i < kept; i++)
		PROMISE(moved[i] == (char)(i * 7));
	for (size_t i = kept; i < next; i++)
		moved[i] = (char)(i * 7);
	block = moved, size = next;
	return NULL;
}

int main(void)
{
	static const size_t sizes[] = {10, 100, 90, 5000, 200000, 3000000, 2000000, 5000000, 100, 1, 70000};
	block = realloc(NULL, 1);
	block[0] = 0;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (i % 2)
			in_thread(resize, (void *)sizes[i]);
		else
			resize((void *)sizes[i]);
	}
	free(block);
	return 0;
}
