/* SPDX-License-Identifier: MIT */
/* Four threads allocate and write memory without an end. The first says so, once it has some. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *eat(void *first)
{
	for (int i = 0;; i++) {
		char *memory = malloc(1 << 20);
		if (memory)
			memset(memory, i + 1, 1 << 20);
		if (first && i == 8 && write(STDOUT_FILENO, "eating\n", 7) != 7)
			return NULL;
	}
}

int main(void)
{
	pthread_t thread[4];
	for (size_t i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, eat, i == 0 ? thread : NULL))
			return 1;
	pthread_join(thread[0], NULL);
	return 0;
}
