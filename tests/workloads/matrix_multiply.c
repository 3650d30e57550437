/* SPDX-License-Identifier: MIT */
/* Matrix multiply: two matrices of SIZE x SIZE integers, a share of the rows to each thread.
 * Stresses: computing; much is read by all threads and little is written. */
#include "workload.h"

static int *left, *right, *product;

static void *multiply(void *argument)
{
	long id = (long)argument;
	for (long row = share(size, id); row < share(size, id + 1); row++)
		for (long column = 0; column < size; column++) {
			int sum = 0;
			for (long k = 0; k < size; k++)
				sum += left[row * size + k] * right[k * size + column];
			product[row * size + column] = sum;
		}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	size_t bytes = (size_t)size * (size_t)size * sizeof *left;
	left = allocate(bytes);
	right = allocate(bytes);
	product = allocate(bytes);
	for (long i = 0; i < size * size; i++) {
		left[i] = (int)(i % 11);
		right[i] = (int)(i % 7);
	}
	in_threads(multiply);
	uint64_t hash = 0;
	for (long i = 0; i < size * size; i++)
		hash = mix(hash, (uint64_t)product[i]);
	printf("%016lx\n", hash);
	return 0;
}
