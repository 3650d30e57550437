/* SPDX-License-Identifier: MIT */
/* THREADS threads, one after the other; then it says so on stdout and waits for the end of stdin. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *work(void *unused)
{
	volatile int x = 1;

	for (int i = 0; i < 100; i++)
		x = x % 3 ? x * 5 + i : x / 3;
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 10;
	pthread_t thread;
	char byte = 'r';

	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
			return 1;
	if (write(1, &byte, 1) != 1)
		return 1;
	return read(0, &byte, 1) != 0;
}
