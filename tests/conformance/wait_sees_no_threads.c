/* SPDX-License-Identifier: MIT */
/* wait finds no child while threads run and after they ended, in main and in threads. */
#include "promise.h"

static struct gate gate = GATE;

static void *run(void *unused)
{
	PROMISE(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	gate_wait(&gate, 1);
	return unused;
}

int main(void)
{
	pthread_t threads[4];
	siginfo_t info;
	for (int i = 0; i < 4; i++)
		threads[i] = start(run, NULL);
	PROMISE(wait(NULL) == -1 && errno == ECHILD);
	PROMISE(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
	PROMISE(waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == -1 && errno == ECHILD);
	gate_open(&gate, 1);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	PROMISE(wait(NULL) == -1 && errno == ECHILD);
	return 0;
}
