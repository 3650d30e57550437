/* SPDX-License-Identifier: MIT */
/* A read that waits into a fresh page, while other threads use that page, gives its bytes when they come. */
#include "promise.h"

static int ends[2];
static char page[2 * PAGE] __attribute__((aligned(4096)));
static struct gate gate = GATE;

static void *read_late(void *unused)
{
	gate_open(&gate, 1);
	PROMISE(read(ends[0], page + 100, 10) == 5 && memcmp(page + 100, "bytes", 5) == 0);
	return unused;
}

int main(void)
{
	PROMISE(pipe(ends) == 0);
	pthread_t thread = start(read_late, NULL);
	gate_wait(&gate, 1);
	for (int i = 0; i < 20; i++) {
		page[0]++;
		gate_open(&gate, i + 2);
		sleep_ms(1);
		PROMISE(page[50] == 0);
	}
	PROMISE(write(ends[1], "bytes", 5) == 5);
	join(thread);
	PROMISE(memcmp(page + 100, "bytes", 5) == 0 && page[0] == 20 && page[105] == 0);
	return 0;
}
