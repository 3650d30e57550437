/* SPDX-License-Identifier: MIT */
/* Writes every second page of a large mapping in a thread, and reads them again: each is a mapping of its own to the
 * kernel when pages have protections. Argument: pages. Prints where the memory is and how many values were right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static unsigned char *memory;
static long pages, right;

static void *use(void *unused)
{
	for (long i = 0; i < pages; i += 2)
		memory[i * PAGE] = (unsigned char)(i / 2 % 251 + 1);
	for (long i = 0; i < pages; i += 2)
		right += memory[i * PAGE] == i / 2 % 251 + 1;
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	pages = argc > 1 ? atol(argv[1]) : 0;
	memory = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || pthread_create(&thread, NULL, use, NULL) || pthread_join(thread, NULL))
		return 1;
	printf("%p %ld\n", (void *)memory, right);
	return 0;
}
