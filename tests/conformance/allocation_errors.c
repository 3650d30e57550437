/* SPDX-License-Identifier: MIT */
/* Too much is ENOMEM and NULL, an overflow in calloc and reallocarray too; nothing is something. */
#include "promise.h"

static void *all(void *unused)
{
	volatile size_t huge = SIZE_MAX / 2 - 100;
	errno = 0;
	PROMISE(malloc(huge) == NULL && errno == ENOMEM);
	PROMISE(calloc(huge, 4) == NULL && errno == ENOMEM);
	char *block = malloc(10);
	PROMISE(reallocarray(block, huge, 8) == NULL && errno == ENOMEM);
	PROMISE(realloc(block, huge) == NULL && errno == ENOMEM);
	block[9] = 1;
	free(block);
	free(NULL);
	void *none = malloc(0), *other = malloc(0);
	PROMISE(none && other && none != other);
	free(none);
	free(other);
	return unused;
}

int main(void)
{
	all(NULL);
	in_thread(all, NULL);
	return 0;
}
