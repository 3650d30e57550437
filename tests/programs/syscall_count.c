// SPDX-License-Identifier: MIT
/* Makes known numbers of system calls: syscall_count THREADS ROUNDS; a round is getppid, read, write. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long rounds;
static int zero;
static int null;

static void *run(void *unused)
{
	char bytes[64];

	for (long i = 0; i < rounds; i++) {
		if (syscall(SYS_getppid) < 0 || read(zero, bytes, sizeof(bytes)) < 0 ||
		    write(null, bytes, sizeof(bytes)) < 0)
			abort();
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct timespec begin, end;
	pthread_t threads[64];
	int count = argc > 1 ? atoi(argv[1]) : 1;

	rounds = argc > 2 ? atol(argv[2]) : 1000;
	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 1; i < count && i < 64; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			abort();
	run(NULL);
	for (int i = 1; i < count && i < 64; i++)
		pthread_join(threads[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.9f\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
	return 0;
}
