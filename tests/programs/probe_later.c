/* SPDX-License-Identifier: MIT */
/*
 * `probe_later LIBRARY TIMES [ends]`: a thread loads LIBRARY, and everybody calls its function `struck` TIMES, with a
 * number that says who: 1 the thread that loaded it, 2 main, 3 a thread that was there before, 4 a thread that this one
 * makes, 5 a fork child of main's, 6 one that the older thread forks. With `ends` the thread that loads it ends before the
 * others call. Prints what the calls gave.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t loaded;
static const char *path;
static long (*struck)(long, long);
static long times;
static int ends;

static long call(long who)
{
	long sum = 0;
	for (long i = 0; i < times; i++)
		sum += struck(who, i);
	return sum;
}

static void load(void)
{
	void *library = dlopen(path, RTLD_NOW);
	struck = library ? (long (*)(long, long))dlsym(library, "struck") : NULL;
	if (!struck)
		exit(3);
}

static void *run(void *who) { return (void *)call((long)who); }

static void *load_and_run(void *nothing)
{
	(void)nothing;
	load();
	long sum = ends ? call(1) : 0;
	if (!ends) {
		pthread_barrier_wait(&loaded);
		sum = call(1);
	}
	return (void *)sum;
}

static long in_a_child(long who)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(call(who) == call(who) ? 7 : 8);
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *run_older(void *nothing)
{
	pthread_t made;
	void *sum;
	(void)nothing;
	pthread_barrier_wait(&loaded);
	long own = call(3);
	if (pthread_create(&made, NULL, run, (void *)4) != 0 || pthread_join(made, &sum) != 0)
		exit(3);
	return (void *)(own + (long)sum + in_a_child(6));
}

int main(int count, char **word)
{
	pthread_t older, loader;
	void *of_older, *of_loader;
	if (count < 3)
		return 2;
	path = word[1];
	times = atol(word[2]);
	ends = count > 3 && strcmp(word[3], "ends") == 0;
	pthread_barrier_init(&loaded, NULL, ends ? 2 : 3);
	pthread_create(&older, NULL, run_older, NULL);
	pthread_create(&loader, NULL, load_and_run, NULL);
	if (ends)
		pthread_join(loader, &of_loader);
	pthread_barrier_wait(&loaded);
	long sum = call(2);
	sum += in_a_child(5);
	if (!ends)
		pthread_join(loader, &of_loader);
	pthread_join(older, &of_older);
	printf("%ld %ld %ld\n", sum, (long)of_loader, (long)of_older);
	return 0;
}
