/* SPDX-License-Identifier: MIT */
/* A constructor that maps where it chooses, gives up, commits and unmaps, as allocators' do. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#define PLACE ((char *)0x720000000)
enum { SIZE = 1 << 20, ALL = PROT_READ | PROT_WRITE, KIND = MAP_PRIVATE | MAP_ANONYMOUS };

char *mapped_by_library = PLACE;

__attribute__((constructor)) static void begin(void)
{
	char *over = PLACE + SIZE, *text = mmap(NULL, 4096, PROT_READ | PROT_EXEC, KIND, -1, 0);
	if (mmap(PLACE, SIZE, PROT_NONE, KIND | MAP_FIXED, -1, 0) != PLACE || mprotect(PLACE, SIZE, ALL))
		abort();
	PLACE[10] = 1;
	if (madvise(PLACE, 4096, MADV_DONTNEED) || PLACE[10] || munmap(text, 4096))
		abort();
	if (mmap(over, SIZE, ALL, KIND | MAP_FIXED, -1, 0) != over || munmap(over, SIZE))
		abort();
	PLACE[20] = 2;
}
