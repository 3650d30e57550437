/* SPDX-License-Identifier: MIT */
/* Globals and thread-locals of a library opened before and after threads began are shared, and fresh in each
 * thread. */
#include "promise.h"

#include <dlfcn.h>

static int *global, *zero;
static int *(*local)(void);
static struct gate gate = GATE;

static void load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	PROMISE(library != NULL);
	global = dlsym(library, "library_global");
	zero = dlsym(library, "library_zero");
	local = (int *(*)(void))dlsym(library, "library_local");
	PROMISE(global && zero && local);
}

static void *load_in_thread(void *path)
{
	load(path);
	PROMISE(*global == 30 && zero[5000] == 0 && *local() == 50);
	*global = 31, zero[5000] = 1, *local() = 51;
	return NULL;
}

static void *look(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(*global == 31 && zero[5000] == 1 && *local() == 50);
	*global = 32;
	return unused;
}

int main(int argc, char **argv)
{
	char path[4096];
	PROMISE(argc == 1);
	snprintf(path, sizeof path, "%s.library.so", argv[0]);
	pthread_t early = start(look, NULL);
	in_thread(load_in_thread, path);
	PROMISE(*global == 31 && zero[5000] == 1 && *local() == 50);
	gate_open(&gate, 1);
	join(early);
	PROMISE(*global == 32);
	return 0;
}
