/* SPDX-License-Identifier: MIT */
/* After pthread_exit in main the other threads go on, and the program ends with status 0 after the last. */
#include "promise.h"

static pthread_t first;

static void *last(void *unused)
{
	void *value;
	sleep_ms(30);
	PROMISE(pthread_join(first, &value) == 0 && value == (void *)5);
	puts("after main");
	return unused;
}

int main(void)
{
	first = pthread_self();
	start(last, NULL);
	pthread_exit((void *)5);
}
