/* SPDX-License-Identifier: MIT */
/* An exec that fails leaves the program with all its threads. */
#include "promise.h"

static struct gate gate = GATE;

static void *wait_for_gate(void *argument)
{
	gate_wait(&gate, 1);
	return argument;
}

static void *fail(void *unused)
{
	PROMISE(execl("/nonexistent/program", "program", NULL) == -1 && errno == ENOENT);
	return unused;
}

int main(void)
{
	pthread_t thread = start(wait_for_gate, &gate);
	in_thread(fail, NULL);
	gate_open(&gate, 1);
	PROMISE(join(thread) == &gate);
	return 0;
}
