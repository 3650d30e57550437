/* SPDX-License-Identifier: MIT */
/*
 * `many_libraries COUNT PATTERN [FIRST]`: a thread loads FIRST if it is given, then COUNT libraries, whose paths PATTERN
 * makes of their numbers. The function `bump` of each, which counts in the library's data, is called by a thread that was
 * there before, by main and by the thread that loaded them. Prints how many calls did not see the one before.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int (**bump)(void);
static int count;
static const char *pattern, *first;
static pthread_barrier_t turn;

static int wrong(int expected)
{
	int found = 0;
	for (int i = 0; i < count; i++)
		found += bump[i]() != expected;
	return found;
}

static void *load(void *unused)
{
	if (first && !dlopen(first, RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	for (int i = 0; i < count; i++) {
		char path[4096];
		snprintf(path, sizeof path, pattern, i);
		void *library = dlopen(path, RTLD_NOW);
		bump[i] = library ? (int (*)(void))dlsym(library, "bump") : NULL;
		if (!bump[i]) {
			fprintf(stderr, "%s\n", dlerror());
			exit(3);
		}
	}
	(void)unused;
	pthread_barrier_wait(&turn); /* loaded */
	pthread_barrier_wait(&turn); /* the older one has called */
	pthread_barrier_wait(&turn); /* main, too */
	return (void *)(long)wrong(3);
}

static void *call(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&turn);
	int found = wrong(1);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	return (void *)(long)found;
}

int main(int words, char **word)
{
	pthread_t older, loader;
	void *of_older, *of_loader;
	if (words < 3)
		return 2;
	count = atoi(word[1]);
	pattern = word[2];
	first = word[3];
	bump = calloc((size_t)count, sizeof *bump);
	pthread_barrier_init(&turn, NULL, 3);
	pthread_create(&older, NULL, call, NULL);
	pthread_create(&loader, NULL, load, NULL);
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	int of_main = wrong(2);
	pthread_barrier_wait(&turn);
	pthread_join(loader, &of_loader);
	pthread_join(older, &of_older);
	printf("%ld %d %ld\n", (long)of_older, of_main, (long)of_loader);
	return 0;
}
