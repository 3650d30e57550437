/* SPDX-License-Identifier: MIT */
/* Threads that only talk through a pipe and share memory see what was written before the byte was sent. */
#include "promise.h"

static int there[2], back[2];
static long data[2048];

static void *answer(void *unused)
{
	char byte;
	for (long round = 1; round <= 100; round++) {
		PROMISE(read(there[0], &byte, 1) == 1 && data[round % 2048] == round);
		data[(round + 1000) % 2048] = -round;
		PROMISE(write(back[1], "y", 1) == 1);
	}
	return unused;
}

int main(void)
{
	char byte;
	PROMISE(pipe(there) == 0 && pipe(back) == 0);
	pthread_t thread = start(answer, NULL);
	for (long round = 1; round <= 100; round++) {
		data[round % 2048] = round;
		PROMISE(write(there[1], "x", 1) == 1 && read(back[0], &byte, 1) == 1);
		PROMISE(data[(round + 1000) % 2048] == -round);
	}
	join(thread);
	return 0;
}
