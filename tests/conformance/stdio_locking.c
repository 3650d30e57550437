/* SPDX-License-Identifier: MIT */
/* flockfile is recursive and keeps other threads out; ftrylockfile tells. */
#include "promise.h"

static void *try(void *expected)
{
	int result = ftrylockfile(stdout);
	PROMISE((result == 0) == (expected == NULL));
	if (result == 0)
		funlockfile(stdout);
	return NULL;
}

static void *write_it(void *unused)
{
	printf("second\n");
	return unused;
}

int main(void)
{
	flockfile(stdout);
	flockfile(stdout);
	in_thread(try, stdout);
	pthread_t thread = start(write_it, NULL);
	sleep_ms(20);
	printf("first\n");
	funlockfile(stdout);
	in_thread(try, stdout);
	funlockfile(stdout);
	join(thread);
	in_thread(try, NULL);
	return 0;
}
