/* SPDX-License-Identifier: MIT */
/*
 * A variable in a library that is loaded while a thread runs that is older than it: watch_later LIBRARY [fork].
 * The library's constructor writes 1, the older thread 20, main 10, a younger thread 30; then it is unloaded, and loaded
 * again: 1 and 40. `fork`: the child of a fork loads it instead, and writes 50.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*volatile store)(long);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t loaded = PTHREAD_COND_INITIALIZER;

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	pthread_mutex_lock(&lock);
	*(void **)&store = library ? dlsym(library, "store") : NULL;
	pthread_cond_broadcast(&loaded);
	pthread_mutex_unlock(&lock);
	return library;
}

static void *older(void *data)
{
	pthread_mutex_lock(&lock);
	while (!store)
		pthread_cond_wait(&loaded, &lock);
	pthread_mutex_unlock(&lock);
	store(20);
	return data;
}

static void *younger(void *data)
{
	store(30);
	return data;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc > 2 && !strcmp(argv[2], "fork")) {
		if (fork() == 0) {
			load(argv[1]);
			store(50);
			_exit(0);
		}
		return wait(NULL) < 0;
	}
	pthread_create(&thread, NULL, older, NULL);
	void *library = load(argv[1]);
	pthread_join(thread, NULL);
	store(10);
	pthread_create(&thread, NULL, younger, NULL);
	pthread_join(thread, NULL);
	dlclose(library);
	load(argv[1]);
	store(40);
	puts("done");
	return 0;
}
