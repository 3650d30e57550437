/* SPDX-License-Identifier: MIT */
/* k-means: SIZE points in eight dimensions around sixteen centres, until nothing changes or for 60 rounds.
 * Stresses: thread churn: every round creates its threads anew. */
#include "workload.h"

enum { DIMENSIONS = 8, CENTRES = 16, ROUNDS = 60, SPAN = 1000 };

struct partial {
	long sum[CENTRES][DIMENSIONS];
	long count[CENTRES];
	long moved;
};

static int *points, *centres, *nearest;
static struct partial *partials;

static int find_nearest(const int *point)
{
	long best = -1;
	int where = 0;
	for (int centre = 0; centre < CENTRES; centre++) {
		long distance = 0;
		for (int k = 0; k < DIMENSIONS; k++) {
			long difference = point[k] - centres[centre * DIMENSIONS + k];
			distance += difference * difference;
		}
		if (best < 0 || distance < best)
			best = distance, where = centre;
	}
	return where;
}

static void *assign(void *argument)
{
	long id = (long)argument;
	struct partial *mine = &partials[id];
	memset(mine, 0, sizeof *mine);
	for (long i = share(size, id); i < share(size, id + 1); i++) {
		const int *point = points + i * DIMENSIONS;
		int where = find_nearest(point);
		mine->moved += nearest[i] != where;
		nearest[i] = where;
		mine->count[where]++;
		for (int k = 0; k < DIMENSIONS; k++)
			mine->sum[where][k] += point[k];
	}
	return NULL;
}

static long update(void)
{
	long moved = 0;
	for (int id = 0; id < threads; id++)
		moved += partials[id].moved;
	for (int centre = 0; centre < CENTRES; centre++)
		for (int k = 0; k < DIMENSIONS; k++) {
			long sum = 0, count = 0;
			for (int id = 0; id < threads; id++)
				sum += partials[id].sum[centre][k], count += partials[id].count[centre];
			if (count)
				centres[centre * DIMENSIONS + k] = (int)(sum / count);
		}
	return moved;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	points = allocate((size_t)size * DIMENSIONS * sizeof *points);
	nearest = allocate((size_t)size * sizeof *nearest);
	centres = allocate(CENTRES * DIMENSIONS * sizeof *centres);
	partials = allocate((size_t)threads * sizeof *partials);
	uint64_t state = random_seed(7);
	for (long i = 0; i < size * DIMENSIONS; i++)
		points[i] = (int)(next_random(&state) % SPAN);
	for (int i = 0; i < CENTRES * DIMENSIONS; i++)
		centres[i] = (int)(next_random(&state) % SPAN);
	int rounds = 0;
	long moved;
	do {
		in_threads(assign);
		moved = update();
	} while (++rounds < ROUNDS && moved);
	uint64_t hash = 0;
	for (int i = 0; i < CENTRES * DIMENSIONS; i++)
		hash = mix(hash, (uint64_t)centres[i]);
	printf("%d rounds, %016lx\n", rounds, hash);
	return 0;
}
