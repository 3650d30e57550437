/* SPDX-License-Identifier: MIT */
/* A program that has its threads by dlsym, from the library that its argument names; says what each way of asking finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*join)(pthread_t, void **);
static int (*lock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *body(void *value)
{
	for (int i = 0; i < 10; i++) {
		lock(&mutex);
		count++;
		unlock(&mutex);
	}
	return value;
}

int main(int n, char **words)
{
	void *library = dlopen(n > 1 ? words[1] : "libc.so.6", RTLD_NOW), *unknown;
	pthread_t thread[2];

	*(void **)&create = dlsym(library, "pthread_create");
	*(void **)&join = dlsym(library, "pthread_join");
	*(void **)&lock = dlsym(library, "pthread_mutex_lock");
	*(void **)&unlock = dlsym(library, "pthread_mutex_unlock");
	if (!create || !join || !lock || !unlock)
		return 1;
	for (int i = 0; i < 2; i++)
		if (create(&thread[i], NULL, body, NULL) != 0)
			return 2;
	for (int i = 0; i < 2; i++)
		join(thread[i], NULL);
	unknown = dlsym(library, "no_such_function");
	const char *error = dlerror();
	const int told = error && strstr(error, "no_such_function"), once = !dlerror();
	printf("count %d; unknown %d %d; again %d; default %d; next %d; own %d\n", count, !unknown,
	       told, once, dlsym(RTLD_DEFAULT, "fputs") == (void *)fputs,
	       dlsym(RTLD_NEXT, "fputs") == (void *)fputs, dlsym(dlopen(NULL, RTLD_NOW), "fputs") == (void *)fputs);
	return 0;
}
