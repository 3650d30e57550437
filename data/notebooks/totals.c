/* SPDX-License-Identifier: MIT */
/*
 * Adds up prices: a thread for each file given, and a line of the report for each of their sums.
 *
 *   totals REPORT FILE…
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { FILES = 8, SIZE = 4096, APART = 64 * 1024 };

/* each thread has pages of its own, so that what it does is told apart from what others do */
struct region {
	const char *name;
	_Alignas(APART) char text[SIZE];
	_Alignas(APART) long sum;
};

static struct region regions[FILES];

__attribute__((noinline)) static long number(const char **at, const char *end)
{
	long value = 0;
	while (*at < end && **at >= '0' && **at <= '9')
		value = 10 * value + *(*at)++ - '0';
	while (*at < end && *(*at)++ != '\n')
		;
	return value;
}

__attribute__((noinline)) static void add_up(struct region *region, long size)
{
	const char *at = region->text;
	while (at < region->text + size)
		region->sum += number(&at, region->text + size);
}

static void *read_region(void *argument)
{
	struct region *region = argument;
	int file = open(region->name, O_RDONLY);
	if (file < 0)
		return NULL;
	add_up(region, read(file, region->text, SIZE));
	close(file);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 2 + FILES)
		return 2;
	int report = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0666);
	pthread_t threads[FILES];
	for (int i = 0; i < argc - 2; i++) {
		regions[i].name = argv[2 + i];
		pthread_create(&threads[i], NULL, read_region, &regions[i]);
	}
	for (int i = 0; i < argc - 2; i++) {
		char line[32];
		pthread_join(threads[i], NULL);
		int size = snprintf(line, sizeof line, "%10ld\n", regions[i].sum);
		if (write(report, line, (size_t)size) != size)
			return 1;
	}
	return 0;
}
