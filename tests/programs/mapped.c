/* SPDX-License-Identifier: MIT */
/* Maps a page of the file `pages` to read and write, and one to read; a thread reads and writes them. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *shared, *copy;

static void *use(void *unused)
{
	(void)unused;
	shared[0] = copy[0];
	return NULL;
}

int main(void)
{
	const int file = open("pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pthread_t thread;

	if (file < 0 || ftruncate(file, 2 * PAGE) < 0)
		return 1;
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	copy = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, PAGE);
	if (shared == MAP_FAILED || copy == MAP_FAILED || pthread_create(&thread, NULL, use, NULL) ||
	    pthread_join(thread, NULL))
		return 1;
	printf("%d\n", file);
	return 0;
}
