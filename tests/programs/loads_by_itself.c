/* SPDX-License-Identifier: MIT */
/* The C library loads conversions for two threads at a time, without a dlopen of the program's; then each uses what was
   loaded for the other, and so do the main thread and its fork child. Prints what came of the same bytes, in hex. */
#define _GNU_SOURCE
#include <iconv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 2 };

static const char *const from[THREADS] = {"ISO-8859-2", "KOI8-R"};
static iconv_t conversion[THREADS];
static char seen[THREADS][99];
static pthread_barrier_t barrier;

static void convert(int which, char *ret)
{
	char in[] = "\xa3\xc1\xd2", out[32];
	char *source = in, *target = out;
	size_t left = strlen(in), room = sizeof out;
	if (iconv(conversion[which], &source, &left, &target, &room) == (size_t)-1)
		strcpy(out, "failed");
	for (char *at = out; at < target; at++)
		ret += sprintf(ret, "%02x", (unsigned char)*at);
}

static void *load(void *number)
{
	long i = (long)number;
	pthread_barrier_wait(&barrier);
	conversion[i] = iconv_open("UTF-16BE", from[i]);
	if (conversion[i] == (iconv_t)-1)
		exit(2);
	pthread_barrier_wait(&barrier);
	convert(THREADS - 1 - (int)i, seen[i]); /* one after the other would do as well: they have no state */
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void all_here(const char *who)
{
	char text[99] = "";
	for (int i = 0; i < THREADS; i++) {
		convert(i, text);
		printf("%s %s %s\n", who, from[i], text);
	}
	fflush(stdout);
}

int main(void)
{
	pthread_t thread[THREADS];
	int status;
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, load, (void *)i) != 0)
			return 2;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	printf("threads %s %s\n", seen[0], seen[1]);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		all_here("child");
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 2;
	all_here("main");
	printf("child's end: %d\n", status);
	return 0;
}
