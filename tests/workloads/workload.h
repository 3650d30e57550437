/* SPDX-License-Identifier: MIT */
/*
 * What the workloads share: arguments, a deterministic generator, shares of a range, threads, the input file.
 *
 * Every workload is called NAME THREADS SIZE [FILE]. What it prints depends on SIZE and FILE alone: neither on the
 * schedule nor on THREADS. None has a data race, and all synchronise through pthreads only.
 */
#ifndef PTWEAVE_WORKLOAD_H
#define PTWEAVE_WORKLOAD_H

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };

static int threads; /* how many work; set by begin() */
static long size;   /* how much there is to do; what it counts is the workload's */

static inline void fail(const char *what)
{
	perror(what);
	exit(2);
}

/* Reads the arguments. */
static inline void begin(int argc, char **argv, int words)
{
	threads = argc > 1 ? atoi(argv[1]) : 0;
	size = argc > 2 ? atol(argv[2]) : 0;
	if (argc != words + 1 || threads < 1 || threads > MAX_THREADS || size < 1) {
		fprintf(stderr, "%s THREADS SIZE%s\n", argv[0], words > 2 ? " FILE" : "");
		exit(2);
	}
}

/* xorshift64* (Vigna, 2016) */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

static inline uint64_t random_seed(uint64_t number) { return (number + 1) * 0x9e3779b97f4a7c15u; }

/* Where share `index` of `total` begins; the last one ends where share `threads` would begin. */
static inline long share(long total, long index) { return total * index / threads; }

/* Runs `routine` in all threads, with their numbers, and waits for them. */
static inline void in_threads(void *(*routine)(void *))
{
	pthread_t ids[MAX_THREADS];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, routine, (void *)i))
			fail("pthread_create");
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
}

/* The first `size` bytes of a file (or all, and then `size` is less), mapped privately. */
static inline const unsigned char *map_input(const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &status))
		fail(path);
	if (size > status.st_size)
		size = status.st_size;
	void *memory = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (memory == MAP_FAILED)
		fail(path);
	close(fd);
	return memory;
}

static inline void *allocate(size_t bytes)
{
	void *memory = calloc(1, bytes);
	if (!memory)
		fail("calloc");
	return memory;
}

/* FNV-1a, a word at a time: sums of results that fit in a line of output */
static inline uint64_t mix(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x100000001b3u; }

#endif
