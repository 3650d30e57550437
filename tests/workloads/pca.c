/* SPDX-License-Identifier: MIT */
/* Principal component analysis, its first half: means and covariances of the rows of a matrix of SIZE x SIZE.
 * Stresses: a lock per row: which thread takes which row is decided by the schedule. */
#include "workload.h"

enum { SPAN = 100 };

static int **rows, *means;
static int64_t **covariances;
static long next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long take_row(void)
{
	pthread_mutex_lock(&lock);
	long row = next++;
	pthread_mutex_unlock(&lock);
	return row;
}

static void *find_means(void *unused)
{
	for (long row; (row = take_row()) < size;) {
		int64_t sum = 0;
		for (long k = 0; k < size; k++)
			sum += rows[row][k];
		means[row] = (int)(sum / size);
	}
	return unused;
}

static void *find_covariances(void *unused)
{
	for (long row; (row = take_row()) < size;)
		for (long other = row; other < size; other++) {
			int64_t sum = 0;
			for (long k = 0; k < size; k++)
				sum += (rows[row][k] - means[row]) * (rows[other][k] - means[other]);
			covariances[row][other] = covariances[other][row] = sum / (size > 1 ? size - 1 : 1);
		}
	return unused;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	rows = allocate((size_t)size * sizeof *rows);
	covariances = allocate((size_t)size * sizeof *covariances);
	means = allocate((size_t)size * sizeof *means);
	uint64_t state = random_seed(3), hash = 0;
	for (long i = 0; i < size; i++) {
		rows[i] = allocate((size_t)size * sizeof **rows);
		covariances[i] = allocate((size_t)size * sizeof **covariances);
		for (long k = 0; k < size; k++)
			rows[i][k] = (int)(next_random(&state) % SPAN);
	}
	in_threads(find_means);
	next = 0;
	in_threads(find_covariances);
	for (long i = 0; i < size; i++)
		for (long k = 0; k < size; k++)
			hash = mix(hash, (uint64_t)covariances[i][k]);
	printf("%016lx\n", hash);
	return 0;
}
