/* SPDX-License-Identifier: MIT */
/* A thread may be joined by one that did not create it, even after its creator has ended. */
#include "promise.h"

static pthread_t grandchild;

static void *work(void *unused)
{
	sleep_ms(20);
	(void)unused;
	return (void *)8;
}

static void *create_and_leave(void *unused)
{
	grandchild = start(work, NULL);
	return unused;
}

int main(void)
{
	in_thread(create_and_leave, NULL);
	PROMISE(join(grandchild) == (void *)8);
	return 0;
}
