/* SPDX-License-Identifier: MIT */
/* Stream clustering: a stream of points is given centres while it arrives: SIZE rounds; in each, one point of a window
 * of 512 is tried as a new centre, and opened when that costs less than it saves.
 * Stresses: barriers: three a round, with little work between them. */
#include "workload.h"

enum { DIMENSIONS = 32, POINTS = 8192, WINDOW = 512, STRIDE = 64, SPAN = 100 };

static const int64_t opening_cost = 400000;

static int32_t *points;   /* POINTS x DIMENSIONS */
static int64_t *distances; /* of each point to its centre */
static int32_t *centre_of;
static struct {
	int64_t gain;
	char apart[56];
} gains[MAX_THREADS];
static long opened;
static int open_now;
static pthread_barrier_t barrier;

static int64_t distance(long left, long right)
{
	int64_t sum = 0;
	for (int k = 0; k < DIMENSIONS; k++) {
		int32_t difference = points[left * DIMENSIONS + k] - points[right * DIMENSIONS + k];
		sum += difference * difference;
	}
	return sum;
}

static int64_t gain_of(long candidate, long from, long to)
{
	int64_t gain = 0;
	for (long i = from; i < to; i++) {
		int64_t closer = distances[i] - distance(i, candidate);
		gain += closer > 0 ? closer : 0;
	}
	return gain;
}

static void decide(void)
{
	int64_t gain = -opening_cost;
	for (int id = 0; id < threads; id++)
		gain += gains[id].gain;
	open_now = gain > 0;
	opened += open_now;
}

static void reassign(long candidate, long from, long to)
{
	for (long i = from; i < to; i++) {
		int64_t now = distance(i, candidate);
		if (now < distances[i]) {
			distances[i] = now;
			centre_of[i] = (int32_t)candidate;
		}
	}
}

static void *cluster(void *argument)
{
	long id = (long)argument;
	for (long round = 0; round < size; round++) {
		long base = round * STRIDE % (POINTS - WINDOW), candidate = base + round * 7 % WINDOW;
		long from = base + share(WINDOW, id), to = base + share(WINDOW, id + 1);
		gains[id].gain = gain_of(candidate, from, to);
		pthread_barrier_wait(&barrier);
		if (id == 0)
			decide();
		pthread_barrier_wait(&barrier);
		if (open_now)
			reassign(candidate, from, to);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	points = allocate((size_t)POINTS * DIMENSIONS * sizeof *points);
	distances = allocate(POINTS * sizeof *distances);
	centre_of = allocate(POINTS * sizeof *centre_of);
	uint64_t state = random_seed(11), hash = 0;
	for (long i = 0; i < (long)POINTS * DIMENSIONS; i++)
		points[i] = (int32_t)(next_random(&state) % SPAN);
	for (long i = 0; i < POINTS; i++)
		distances[i] = distance(i, 0);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	in_threads(cluster);
	for (long i = 0; i < POINTS; i++)
		hash = mix(mix(hash, (uint64_t)distances[i]), (uint64_t)centre_of[i]);
	printf("%ld centres, %016lx\n", opened, hash);
	return 0;
}
