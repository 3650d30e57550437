/* SPDX-License-Identifier: MIT */
/* malloc_trim, mallinfo2, mallopt and malloc_info can be called in a program with threads. */
#include "promise.h"

#include <malloc.h>

static void *use(void *unused)
{
	for (int i = 0; i < 100; i++)
		free(malloc((size_t)i * 100));
	return unused;
}

int main(void)
{
	FILE *out = fopen("/dev/null", "w");
	pthread_t thread = start(use, NULL);
	mallopt(M_ARENA_MAX, 2);
	use(NULL);
	(void)mallinfo2();
	(void)malloc_trim(0);
	malloc_info(0, out);
	join(thread);
	fclose(out);
	return 0;
}
