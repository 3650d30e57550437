/* SPDX-License-Identifier: MIT */
/* pthread_exit from deep within a thread ends that thread alone, and gives its value to the joiner. */
#include "promise.h"

static int dive(int depth)
{
	if (depth == 0)
		pthread_exit((void *)77);
	return depth > 1000 ? 0 : dive(depth - 1) + 1;
}

static void *run(void *unused)
{
	dive(50);
	broken("pthread_exit does not return", __func__, __LINE__);
	return unused;
}

int main(void)
{
	PROMISE(in_thread(run, NULL) == (void *)77);
	return 0;
}
