/* SPDX-License-Identifier: MIT */
/* A thread loads a library, its creator forks, and the child calls what the thread found there. Then a thread that has
   called nothing of it loads and forks in turn, and so on.
   usage: loaded_by_a_thread A.so B.so. Prints what the libraries counted, in each process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*bump[2])(void);
static const char *path[2];

static void *load(void *which)
{
	long i = (long)which;
	void *library = dlopen(path[i], RTLD_NOW);
	bump[i] = library ? (int (*)(void))dlsym(library, "bump") : NULL;
	return bump[i] ? (void *)(long)bump[i]() : NULL;
}

static void load_in_thread(long i)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, load, (void *)i) != 0 || pthread_join(thread, NULL) != 0 || !bump[i])
		exit(2);
}

/* In a child of its own. */
static int apart(void (*function)(void))
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		function();
		fflush(stdout);
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void call_first(void) { printf("grandchild %d\n", bump[0]()); }

static void call_both(void)
{
	load_in_thread(1);
	printf("child %d %d\n", bump[0](), bump[1]());
	if (apart(call_first) != 0)
		exit(3);
}

static void *fork_in_thread(void *ret)
{
	*(int *)ret = apart(call_both);
	return NULL;
}

int main(int argc, char **argv)
{
	int status = -1;
	pthread_t thread;
	if (argc != 3)
		return 2;
	path[0] = argv[1];
	path[1] = argv[2];
	load_in_thread(0);
	printf("main's child: %d\n", apart(call_both));
	if (pthread_create(&thread, NULL, fork_in_thread, &status) != 0 || pthread_join(thread, NULL) != 0)
		return 2;
	printf("a thread's child: %d\n", status);
	return 0;
}
