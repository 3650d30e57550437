/* SPDX-License-Identifier: MIT */
/* Two threads write ROUNDS values each into `counter`, one after the other, and much else in between. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

volatile long counter;
static volatile long sink;

static void *count(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++) {
		for (int other = 0; other < 20; other++)
			sink += other;
		counter = counter + 3;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 10;
	pthread_t thread;

	count((void *)rounds);
	if (pthread_create(&thread, NULL, count, (void *)rounds))
		return 1;
	pthread_join(thread, NULL);
	printf("%ld\n", counter);
	return 0;
}
