/* SPDX-License-Identifier: MIT */
/* Linear regression: the line through the points (pairs of bytes) mapped from FILE, SIZE bytes.
 * Stresses: false sharing: the sums of all threads lie side by side, 40 bytes each, and every point is added there. */
#include "workload.h"

struct sums {
	int64_t x, y, xx, yy, xy;
};

static const unsigned char *points;
static volatile struct sums *sums;

static void *add(void *argument)
{
	long id = (long)argument, all = size / 2;
	volatile struct sums *mine = &sums[id];
	const unsigned char *end = points + share(all, id + 1) * 2;
	for (const unsigned char *point = points + share(all, id) * 2; point < end; point += 2) {
		int64_t x = point[0], y = point[1];
		mine->x += x;
		mine->y += y;
		mine->xx += x * x;
		mine->yy += y * y;
		mine->xy += x * y;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 3);
	points = map_input(argv[3]);
	sums = allocate((size_t)threads * sizeof *sums);
	in_threads(add);
	struct sums all = {0};
	for (int id = 0; id < threads; id++) {
		all.x += sums[id].x;
		all.y += sums[id].y;
		all.xx += sums[id].xx;
		all.yy += sums[id].yy;
		all.xy += sums[id].xy;
	}
	double n = (double)(size / 2), x = (double)all.x, y = (double)all.y;
	double slope = (n * (double)all.xy - x * y) / (n * (double)all.xx - x * x);
	printf("sums %ld %ld %ld %ld %ld\n", all.x, all.y, all.xx, all.yy, all.xy);
	printf("y = %.9f x + %.9f\n", slope, (y - slope * x) / n);
	free((void *)sums);
	return 0;
}
