/* SPDX-License-Identifier: MIT */
/* pthread_join gives what the start routine returned, whichever order threads are joined in. */
#include "promise.h"

static void *twice(void *argument) { return (void *)((uintptr_t)argument * 2); }

int main(void)
{
	pthread_t threads[16];
	for (uintptr_t i = 0; i < 16; i++)
		threads[i] = start(twice, (void *)(i << 40));
	for (int i = 15; i >= 0; i--)
		PROMISE(join(threads[i]) == (void *)((uintptr_t)i << 41));
	PROMISE(pthread_join(start(twice, NULL), NULL) == 0);
	return 0;
}
