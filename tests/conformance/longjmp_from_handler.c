/* SPDX-License-Identifier: MIT */
/* siglongjmp out of a handler in a thread goes back to that thread, with its mask. */
#include "promise.h"

#include <setjmp.h>

static __thread sigjmp_buf out;

static void handler(int number) { siglongjmp(out, number); }

static void *jump(void *unused)
{
	sigset_t now;
	for (volatile int i = 0; i < 100; i++)
		if (sigsetjmp(out, 1) == 0)
			raise(SIGUSR1);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	PROMISE(!sigismember(&now, SIGUSR1));
	return unused;
}

int main(void)
{
	pthread_t threads[3];
	signal(SIGUSR1, handler);
	for (int i = 0; i < 3; i++)
		threads[i] = start(jump, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	return 0;
}
