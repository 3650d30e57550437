/* SPDX-License-Identifier: MIT */
/* A thread loads the library ("libkept.so", found where the program says: its caller matters), and another uses it
   while no synchronisation has told the first one's process to share it: the two only look at memory until then.
   Prints what the other sees of the library's data before and after. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic int stage;
static int (*add)(int);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_for(int wanted)
{
	while (atomic_load(&stage) != wanted)
		;
}

static void synchronise(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void *load(void *unused)
{
	void *library = dlopen("libkept.so", RTLD_NOW);
	if (!library)
		exit(2);
	*(void **)&add = dlsym(library, "add");
	add(1);
	atomic_store(&stage, 1);
	wait_for(2);
	synchronise();
	add(5);
	synchronise();
	atomic_store(&stage, 3);
	return unused;
}

int main(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, load, NULL) != 0)
		return 2;
	wait_for(1);
	printf("before %d\n", add(0));
	atomic_store(&stage, 2);
	wait_for(3);
	synchronise();
	printf("after %d\n", add(0));
	pthread_join(thread, NULL);
	return 0;
}
