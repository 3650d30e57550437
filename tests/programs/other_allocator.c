/* SPDX-License-Identifier: MIT */
/*
 * An allocator as a library of a program's own (jemalloc is such a one): malloc and its kin, and besides `take`, as
 * operator new, which calls none of them, and `give`, as operator delete, which calls free. Its lock lies in memory that
 * it maps before main. Nothing is handed out twice.
 */
#define _GNU_SOURCE
#include "other_allocator.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA = 4 << 20, LARGE = 1 << 20, BEFORE_LARGE = 1088, MINE = 0x5ca1ab1e, BACK = 0x0ddba11 };

struct block {
	uint64_t size;
	uint32_t state;
	uint32_t taken;
};

struct early {
	pthread_mutex_t lock;
	char *next, *end;
	long returned;
};

static struct early *early;

static char *map(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	return memory;
}

__attribute__((constructor)) static void begin(void)
{
	if (early)
		return;
	early = (struct early *)map(ARENA);
	early->next = (char *)early + 4096;
	early->end = (char *)early + ARENA;
}

static struct block *block_of(void *memory)
{
	struct block *block = (struct block *)memory - 1;
	if (block->state != MINE)
		abort();
	return block;
}

static void *allocate(size_t size, bool taken)
{
	size_t all = (size + sizeof(struct block) + 15) & ~(size_t)15;
	char *at;
	begin();
	if (size >= LARGE) {
		at = map(all + BEFORE_LARGE) + BEFORE_LARGE;
	} else {
		pthread_mutex_lock(&early->lock);
		if (early->end - early->next < (long)all) {
			early->next = map(ARENA);
			early->end = early->next + ARENA;
		}
		at = early->next;
		early->next += all;
		pthread_mutex_unlock(&early->lock);
	}
	*(struct block *)at = (struct block){size, MINE, taken};
	return at + sizeof(struct block);
}

void *malloc(size_t size) { return allocate(size, false); }

void free(void *memory)
{
	if (!memory)
		return;
	struct block *block = block_of(memory);
	if (block->taken)
		__atomic_fetch_add(&early->returned, 1, __ATOMIC_RELAXED);
	block->state = BACK;
	if (block->size >= LARGE)
		munmap((char *)block - BEFORE_LARGE, (block->size + sizeof *block + 15 + BEFORE_LARGE) & ~(size_t)15);
}

void *calloc(size_t count, size_t each) { return allocate(count * each, false); } /* what is mapped is zeros */

size_t malloc_usable_size(void *memory) { return memory ? block_of(memory)->size : 0; }

void *realloc(void *memory, size_t size)
{
	void *moved = allocate(size, memory && block_of(memory)->taken);
	if (memory) {
		size_t before = block_of(memory)->size;
		memcpy(moved, memory, before < size ? before : size);
		free(memory);
	}
	return moved;
}

void *memalign(size_t alignment, size_t size)
{
	char *block = allocate(size + alignment + sizeof(struct block), false);
	char *at = (char *)(((uintptr_t)block + sizeof(struct block) + alignment - 1) & ~(alignment - 1));
	((struct block *)at)[-1] = (struct block){size, MINE, false};
	return at;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **ret, size_t alignment, size_t size)
{
	*ret = memalign(alignment, size);
	return 0;
}

void *take(size_t size) { return allocate(size, true); }

void give(void *memory) { free(memory); }

long returned(void) { return early->returned; }
