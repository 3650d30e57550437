/* SPDX-License-Identifier: MIT */
/* Histogram: how often each value of each colour occurs in a picture of SIZE bytes (three a pixel) mapped from FILE.
 * Stresses: one pass over a large mapping, dense counting in a thread's own table. */
#include "workload.h"

enum { COLOURS = 3, VALUES = 256 };

static const unsigned char *pixels;
static int counts[MAX_THREADS][COLOURS][VALUES];

static void *count(void *argument)
{
	long id = (long)argument, all = size / COLOURS;
	int (*mine)[VALUES] = counts[id];
	const unsigned char *end = pixels + share(all, id + 1) * COLOURS;
	for (const unsigned char *pixel = pixels + share(all, id) * COLOURS; pixel < end; pixel += COLOURS)
		for (int colour = 0; colour < COLOURS; colour++)
			mine[colour][pixel[colour]]++;
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 3);
	pixels = map_input(argv[3]);
	in_threads(count);
	for (int colour = 0; colour < COLOURS; colour++) {
		uint64_t hash = 0, total = 0;
		for (int value = 0; value < VALUES; value++) {
			uint64_t sum = 0;
			for (int id = 0; id < threads; id++)
				sum += (uint64_t)counts[id][colour][value];
			hash = mix(hash, sum);
			total += sum;
		}
		printf("colour %d: %lu pixels, %016lx\n", colour, total, hash);
	}
	return 0;
}
