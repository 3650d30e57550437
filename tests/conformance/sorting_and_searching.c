/* SPDX-License-Identifier: MIT */
/* qsort, bsearch, tsearch and hash tables of libc work on data of several threads. */
#include "promise.h"

#include <search.h>

enum { COUNT = 5000 };

static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

static void *sort(void *argument)
{
	int *numbers = argument, key = 4242;
	void *root = NULL;
	qsort(numbers, COUNT, sizeof *numbers, compare);
	for (int i = 0; i < COUNT; i++)
		PROMISE(numbers[i] == i);
	PROMISE(*(int *)bsearch(&key, numbers, COUNT, sizeof key, compare) == key);
	for (int i = 0; i < COUNT; i++)
		PROMISE(**(int **)tsearch(&numbers[i], &root, compare) == i);
	while (root)
		tdelete(*(void **)root, &root, compare);
	return NULL;
}

int main(void)
{
	static int numbers[3][COUNT];
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < COUNT; k++)
			numbers[i][k] = (k * 7 + i) % COUNT;
	for (int i = 0; i < 3; i++)
		threads[i] = start(sort, numbers[i]);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	return 0;
}
