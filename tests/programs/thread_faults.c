/* SPDX-License-Identifier: MIT */
/* Prints how many page faults a thread costs its program, from its creation to its end: nothing is done in it. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

enum { WARM = 50, THREADS = 200 };

static void *nothing(void *unused) { return unused; }

static long faults_after(int threads)
{
	struct rusage usage;
	pthread_t thread;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
			return -1;
	return getrusage(RUSAGE_SELF, &usage) ? -1 : usage.ru_minflt;
}

int main(void)
{
	long before = faults_after(WARM), after = faults_after(THREADS);
	if (before < 0 || after < 0)
		return 1;
	printf("%ld\n", (after - before) / THREADS);
	return 0;
}
