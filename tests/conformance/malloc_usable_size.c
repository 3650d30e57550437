/* SPDX-License-Identifier: MIT */
/* malloc_usable_size is at least what was asked for, and all of it can be used, in every thread and for every
 * way to allocate. */
#include "promise.h"

#include <malloc.h>

static void check(void *block, size_t asked)
{
	size_t size = malloc_usable_size(block);
	PROMISE(block && size >= asked && size < asked + asked / 2 + 8192);
	memset(block, 0x77, size);
	free(block);
}

static void *all(void *unused)
{
	for (size_t size = 1; size < 3000000; size = size * 3 / 2 + 1) {
		void *block;
		check(malloc(size), size);
		check(calloc(1, size), size);
		check(realloc(malloc(10), size), size);
		check(memalign(64, size), size);
		PROMISE(posix_memalign(&block, 256, size) == 0);
		check(block, size);
	}
	PROMISE(malloc_usable_size(NULL) == 0);
	return unused;
}

int main(void)
{
	all(NULL);
	in_thread(all, NULL);
	return 0;
}
