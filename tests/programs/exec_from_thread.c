// SPDX-License-Identifier: MIT
/* A thread that is not the first one makes the exec: the kernel gives it the first one's tid. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char **words;

static void *run(void *unused)
{
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
