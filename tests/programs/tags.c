/* SPDX-License-Identifier: MIT */
/*
 * Tags from everywhere: `tags MANY`. main tags "begin" and "end"; two threads tag MANY times each, two functions deep, with
 * their index as data; a fork child tags "child"; a handler tags "handler" in the midst; one tag has a megabyte; one has
 * bytes that are no UTF-8. Prints the addresses that its functions begin at.
 */
#define _GNU_SOURCE
#include <ptweave/tag.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int many;

__attribute__((noinline)) static void inner(const char *who, int index)
{
	char value[16];
	snprintf(value, sizeof value, "%d", index);
	errno = 77;
	ptweave_tag_with(who, "index", value);
	if (errno != 77)
		abort();
}

__attribute__((noinline)) static void outer(const char *who, int index)
{
	inner(who, index);
	__asm__ volatile("");
}

static void *run(void *who)
{
	for (int i = 0; i < many; i++)
		outer(who, i);
	return NULL;
}

static void handler(int number)
{
	(void)number;
	ptweave_tag("handler");
}

int main(int count, char **word)
{
	pthread_t thread[2];
	static char *names[] = {"one", "two"};
	many = count > 1 ? atoi(word[1]) : 3;
	ptweave_tag("begin");
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, run, names[i]) != 0)
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	pid_t child = fork();
	if (child == 0) {
		ptweave_tag("child");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	char *large = malloc(1 << 20);
	if (!large)
		return 1;
	memset(large, 'L', (1 << 20) - 1);
	large[(1 << 20) - 1] = 0;
	ptweave_tag(large);
	ptweave_tag("caf\xc3\xa9 \xff");
	ptweave_tag("end");
	free(large);
	return 0;
}
