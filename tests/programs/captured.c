/* SPDX-License-Identifier: MIT */
/* Known steps: work(4) calls twice(4) two times, sorts four numbers with compare() of its own, fails an open, and recurses
 * through down(3). In main and in a thread. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOWN __attribute__((noinline, noclone))

static volatile int sink;

SHOWN int twice(int value) { return sink = 2 * value; }

SHOWN int compare(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}

SHOWN int down(int left)
{
	if (left == 0)
		return sink;
	int below = down(left - 1);
	return sink = below + left;
}

SHOWN int work(int value)
{
	int numbers[4] = {4, 3, 2, value};
	int sum = twice(value);
	sum += twice(sum);
	qsort(numbers, 4, sizeof *numbers, compare);
	sum += numbers[0] + (int)write(-1, "x", 1) + open("/nowhere/at/all", O_RDONLY);
	sum += down(3);
	return sink = sum;
}

static void *run(void *argument)
{
	(void)argument;
	work(1);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	work(4);
	work(5);
	if (pthread_create(&thread, NULL, run, NULL) != 0)
		return 1;
	pthread_join(thread, NULL);
	return 0;
}
