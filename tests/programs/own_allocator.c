/* SPDX-License-Identifier: MIT */
/*
 * A program with an allocator of its own, which a library's constructor is the first to call: what it hands out then is
 * mapped before main. Prints what main sees of a word there that a thread wrote, from one that it wrote itself and the
 * thread saw. The C library allocates for the thread, and then the thread allocates, while its creator computes: "twice"
 * says that it was given memory that had been given to its creator.
 *
 * KIND: 0 the chunk is mapped with room to align it, and the rest unmapped, as jemalloc does; 1 it is a piece of the
 * break, as tcmalloc's; 2 three hundred mappings, with one that is not ours between two: more than libtthread notes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (8u << 20)
#define ALIGNED (2u << 20)
#define COMPUTES_MS 15

void *early(void);

static char *chunk;
static size_t used;
static __thread size_t given; /* `used`, after this thread's last call */

static __attribute__((unused)) char *map(size_t size, int protection)
{
	return mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static char *get_chunk(void)
{
#if KIND == 0
	char *start = map(CHUNK + ALIGNED, PROT_READ | PROT_WRITE);
	char *found = (char *)(((uintptr_t)start + ALIGNED - 1) & ~(uintptr_t)(ALIGNED - 1));

	if (found > start)
		munmap(start, (size_t)(found - start));
	munmap(found + CHUNK, (size_t)(start + ALIGNED - found));
	return found;
#elif KIND == 1
	return sbrk(CHUNK);
#else
	for (int i = 0; i < 300; i++) {
		map(4096, PROT_READ | PROT_WRITE);
		mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	}
	return map(CHUNK, PROT_READ | PROT_WRITE);
#endif
}

void *malloc(size_t size)
{
	if (!chunk)
		chunk = get_chunk();
	void *found = chunk + used;
	given = used += (size + 15) & ~(size_t)15;
	return used <= CHUNK ? found : NULL;
}

void free(void *place) { (void)place; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *before, size_t size)
{
	void *found = malloc(size);

	return found && before ? memcpy(found, before, size) : found;
}

static void *thread(void *words)
{
	int *shared = words;

	shared[1] = shared[0] + 1;
	return malloc(16);
}

/* Nothing here hands on what was written. */
static void compute(void)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < COMPUTES_MS);
}

int main(void)
{
	int *shared = early();
	pthread_t other;
	void *got;

	shared[0] = 41;
	if (pthread_create(&other, NULL, thread, shared))
		return 1;
	compute();
	pthread_join(other, &got);
	printf("%d%s\n", shared[1], (char *)got < chunk + given ? " twice" : "");
	return 0;
}
