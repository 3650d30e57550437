/* SPDX-License-Identifier: MIT */
/* memalign, aligned_alloc, posix_memalign, valloc and pvalloc align as asked; wrong alignments are EINVAL. */
#include "promise.h"

#include <malloc.h>

static void aligned(void *block, size_t alignment, size_t size)
{
	PROMISE(block && (uintptr_t)block % alignment == 0);
	memset(block, 1, size);
	free(block);
}

static void *all(void *unused)
{
	void *block = unused;
	for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 2)
		for (size_t size = 1; size < 20000; size = size * 5 + 3) {
			aligned(memalign(alignment, size), alignment, size);
			PROMISE(posix_memalign(&block, alignment, size) == 0);
			aligned(block, alignment, size);
			aligned(aligned_alloc(alignment, (size + alignment - 1) & ~(alignment - 1)), alignment, size);
		}
	aligned(valloc(100), PAGE, 100);
	aligned(pvalloc(100), PAGE, PAGE);
	aligned(malloc(1), 16, 1);
	PROMISE(posix_memalign(&block, 24, 100) == EINVAL && posix_memalign(&block, 2, 100) == EINVAL);
	return NULL;
}

int main(void)
{
	all(NULL);
	in_thread(all, NULL);
	return 0;
}
