/* SPDX-License-Identifier: MIT */
/* Signals that come all the time disturb neither locks nor conditions nor memory. */
#include "promise.h"

#include <sys/time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long total;
static volatile long ticks;

static void handler(int number) { (void)number; ticks++; }

static void *add(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mutex);
		total++;
		char *block = malloc(100 + (size_t)i);
		memset(block, i, 100);
		pthread_mutex_unlock(&mutex);
		free(block);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[4];
	struct itimerval every = {{0, 500}, {0, 500}};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 4; i++)
		threads[i] = start(add, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(total == 8000);
	return 0;
}
