/* SPDX-License-Identifier: MIT */
/*
 * How fast AUX bytes go from rings to files: RINGS rings, as of so many threads, each ahead by STEP bytes at every drain,
 * TOTAL bytes in all, into files in FOLDER (begun again when they have 64 MiB together, so that they need little room, and
 * memory that the machine has given already: a virtual one takes up to 2 s to come by a GB for the first time).
 *
 * usage: bench_ring FOLDER RINGS STEP TOTAL
 * prints: bytes, seconds of processor time, seconds
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf_ring.h"

enum { PAGE = 4096, AUX = 4 << 20, FILES_MAX = 64 << 20, RINGS_MAX = 256 };

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int open_in(const char *folder, int number)
{
	char path[4096];
	int file;

	snprintf(path, sizeof(path), "%s/bench-ring-%d", folder, number);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	unlink(path);
	return file;
}

int main(int argc, char **argv)
{
	struct ptw_ring rings[RINGS_MAX], *all[RINGS_MAX];
	uint64_t count, step, total, done = 0;
	double processor = 0, began;

	if (argc != 5)
		return 2;
	count = strtoull(argv[2], NULL, 0);
	step = strtoull(argv[3], NULL, 0);
	total = strtoull(argv[4], NULL, 0);
	if (!count || count > RINGS_MAX || !step || step > AUX)
		return 2;
	memset(rings, 0, sizeof(rings));
	for (uint64_t i = 0; i < count; i++) {
		uint8_t *aux = aligned_alloc(PAGE, AUX);

		rings[i].page = calloc(1, PAGE);
		rings[i].aux = aux;
		rings[i].aux_size = AUX;
		rings[i].file = open_in(argv[1], (int)i);
		if (!rings[i].page || !aux || rings[i].file < 0)
			return 1;
		for (uint64_t at = 0; at < AUX; at++)
			aux[at] = (uint8_t)(at * 2654435761u >> 11);
		all[i] = &rings[i];
	}
	began = now(CLOCK_MONOTONIC);
	while (done < total) {
		double before;

		for (uint64_t i = 0; i < count; i++) {
			struct perf_event_mmap_page *page = rings[i].page;

			page->aux_head += step;
			if (rings[i].stored % (FILES_MAX / count) < step &&
			    (lseek(rings[i].file, 0, SEEK_SET) || ftruncate(rings[i].file, 0)))
				return 1;
		}
		before = now(CLOCK_THREAD_CPUTIME_ID);
		done += (uint64_t)ptw_rings_aux(all, count);
		processor += now(CLOCK_THREAD_CPUTIME_ID) - before;
	}
	for (uint64_t i = 0; i < count; i++)
		if (rings[i].lost || rings[i].overwritten)
			return 1;
	printf("%llu %.6f %.6f\n", (unsigned long long)done, processor, now(CLOCK_MONOTONIC) - began);
	return 0;
}
