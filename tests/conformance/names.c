/* SPDX-License-Identifier: MIT */
/* A thread's name is read and set by pthread_t and by prctl, is inherited, and is its own. */
#include "promise.h"

#include <sys/prctl.h>

static struct gate gate = GATE;

static void *look(void *unused)
{
	char name[16];
	PROMISE(pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, "mother") == 0);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "daughter") == 0);
	PROMISE(pthread_setname_np(pthread_self(), "grown up") == 0);
	gate_open(&gate, 3);
	gate_wait(&gate, 4);
	return unused;
}

int main(void)
{
	char name[16];
	PROMISE(pthread_setname_np(pthread_self(), "mother") == 0);
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	PROMISE(pthread_setname_np(thread, "daughter") == 0);
	PROMISE(pthread_setname_np(thread, "much too long for a name") == ERANGE);
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(pthread_getname_np(thread, name, sizeof name) == 0 && strcmp(name, "grown up") == 0);
	gate_open(&gate, 4);
	join(thread);
	PROMISE(pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, "mother") == 0);
	return 0;
}
