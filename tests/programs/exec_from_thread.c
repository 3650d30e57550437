// SPDX-License-Identifier: MIT
/*
 * A thread that is not the first one makes the exec: the kernel gives it the first one's tid.
 *
 * It waits until the first one sleeps in pause: one that dies before that, in a tracer's stop at the call's beginning,
 * is seen making the call by the tracer and by nobody else.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **words;

/* The one-letter state of the first thread, 0 when it cannot be read. */
static char first_thread_state(void)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	ssize_t size = read(file, text, sizeof text - 1);
	close(file);
	if (size <= 0)
		return 0;
	text[size] = 0;
	const char *end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

static void *run(void *unused)
{
	while (first_thread_state() != 'S')
		usleep(1000);
	execv(words[0], words);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 2)
		return 2;
	words = argv + 1;
	if (pthread_create(&thread, NULL, run, NULL))
		return 3;
	for (;;)
		pause();
}
