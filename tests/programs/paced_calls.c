// SPDX-License-Identifier: MIT
/*
 * Makes system calls at a rate: paced_calls CALLS_A_SECOND SECONDS; a third each of getppid, read and write. Prints how
 * many rounds of three it made, and how long they took. Between bursts of a millisecond's worth it looks at the clock,
 * which is no call.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	double rate = argc > 1 ? atof(argv[1]) / 3 : 1000;
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	int zero = open("/dev/zero", O_RDONLY);
	int null = open("/dev/null", O_WRONLY);
	double begin = now();
	char bytes[64];
	long made = 0;
	double passed;

	while ((passed = now() - begin) < seconds) {
		for (long due = (long)(passed * rate) - made, i = 0; i < due && i < 1000; i++, made++) {
			if (syscall(SYS_getppid) < 0 || read(zero, bytes, sizeof(bytes)) < 0 ||
			    write(null, bytes, sizeof(bytes)) < 0)
				abort();
		}
	}
	printf("%ld %.6f\n", made, now() - begin);
	return 0;
}
