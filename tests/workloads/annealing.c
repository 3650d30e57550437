/* SPDX-License-Identifier: MIT */
/* Simulated annealing of a netlist: SIZE elements on a grid, five wires from each; pairs change places where that makes
 * the wires much shorter, or by chance while it is hot.
 *
 * Every step has two halves. In the first, each thread judges its share of the step's pairs and only reads where
 * elements are. In the second, it moves those that were accepted, and moves the weight of each between two regions,
 * under the locks of both. The pairs of one step have no element in common, so the order of the moves is no matter.
 *
 * Stresses: writes to pages all over a large memory, one after the other, and many locks. */
#include "workload.h"

enum { WIRES = 5, STEPS = 8, REGIONS = 64, PER_STEP = 64 };

struct element {
	int32_t place;
	int32_t weight;
	int32_t wires[WIRES];
	int32_t unused[9]; /* 64 bytes */
};

struct region {
	pthread_mutex_t lock;
	long weight;
};

static struct element *elements;
static struct region regions[REGIONS];
static unsigned char *accepted;
static long width, pairs;
static pthread_barrier_t judged, moved;

static long distance(long from, long to) { return labs(from % width - to % width) + labs(from / width - to / width); }

static long cost_at(const struct element *element, long place)
{
	long cost = 0;
	for (int wire = 0; wire < WIRES; wire++)
		cost += distance(place, elements[element->wires[wire]].place);
	return cost;
}

/* Pair `i` of a step: two elements that are in no other pair of it. */
static void pair(int step, long i, struct element **left, struct element **right)
{
	uint64_t state = random_seed((uint64_t)step * 1000003 + (uint64_t)i);
	long block = size / pairs;
	long from = (long)(next_random(&state) % (uint64_t)block);
	long to = (long)(next_random(&state) % (uint64_t)(block - 1));
	*left = &elements[i + pairs * from];
	*right = &elements[i + pairs * (to < from ? to : to + 1)];
}

static void judge(int step, long i)
{
	struct element *left, *right;
	uint64_t state = random_seed((uint64_t)step * 999983 + (uint64_t)i);
	pair(step, i, &left, &right);
	long gain = cost_at(left, left->place) + cost_at(right, right->place) - cost_at(left, right->place) -
		    cost_at(right, left->place);
	accepted[i] = gain > WIRES * width * 3 / 4 || (long)(next_random(&state) % 200) < STEPS - step;
}

static struct region *region_of(long place) { return &regions[place * REGIONS / size]; }

static void move(int step, long i)
{
	struct element *left, *right;
	pair(step, i, &left, &right);
	struct region *from = region_of(left->place), *to = region_of(right->place);
	struct region *first = from < to ? from : to, *second = from < to ? to : from;
	pthread_mutex_lock(&first->lock);
	if (first != second)
		pthread_mutex_lock(&second->lock);
	int32_t place = left->place;
	left->place = right->place;
	right->place = place;
	from->weight += right->weight - left->weight;
	to->weight += left->weight - right->weight;
	if (first != second)
		pthread_mutex_unlock(&second->lock);
	pthread_mutex_unlock(&first->lock);
}

static void *anneal(void *argument)
{
	long id = (long)argument;
	for (int step = 0; step < STEPS; step++) {
		for (long i = share(pairs, id); i < share(pairs, id + 1); i++)
			judge(step, i);
		pthread_barrier_wait(&judged);
		for (long i = share(pairs, id); i < share(pairs, id + 1); i++)
			if (accepted[i])
				move(step, i);
		pthread_barrier_wait(&moved);
	}
	return NULL;
}

static void make_netlist(void)
{
	uint64_t state = random_seed(5);
	elements = allocate((size_t)size * sizeof *elements);
	accepted = allocate((size_t)pairs);
	for (int i = 0; i < REGIONS; i++)
		pthread_mutex_init(&regions[i].lock, NULL);
	for (long i = 0; i < size; i++) {
		struct element *element = &elements[i];
		element->place = (int32_t)i;
		element->weight = (int32_t)(next_random(&state) % 10);
		region_of(i)->weight += element->weight;
		for (int wire = 0; wire < WIRES; wire++)
			element->wires[wire] = (int32_t)(next_random(&state) % (uint64_t)size);
	}
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	if (size < 2 * PER_STEP) {
		fprintf(stderr, "SIZE is less than %d\n", 2 * PER_STEP);
		return 2;
	}
	pairs = size / PER_STEP;
	for (width = 1; width * width < size;)
		width++;
	pthread_barrier_init(&judged, NULL, (unsigned)threads);
	pthread_barrier_init(&moved, NULL, (unsigned)threads);
	make_netlist();
	in_threads(anneal);
	long cost = 0;
	uint64_t hash = 0;
	for (long i = 0; i < size; i++) {
		cost += cost_at(&elements[i], elements[i].place);
		hash = mix(hash, (uint64_t)elements[i].place);
	}
	for (int i = 0; i < REGIONS; i++)
		hash = mix(hash, (uint64_t)regions[i].weight);
	printf("cost %ld, %016lx\n", cost, hash);
	return 0;
}
