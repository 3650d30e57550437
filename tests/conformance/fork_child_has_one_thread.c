/* SPDX-License-Identifier: MIT */
/* A fork child has the forking thread only, with its stack and thread-locals; it can create threads and join
 * them. */
#include "promise.h"

static __thread int mine;
static volatile long counter;
static struct gate gate = GATE;

static void *count(void *unused)
{
	while (gate.step == 0) {
		counter++;
		sleep_ms(1);
	}
	return unused;
}

static void *add(void *argument)
{
	*(long *)argument += 5;
	return NULL;
}

static void *fork_one(void *unused)
{
	long local = 7;
	int status;
	mine = 9;
	pid_t child = fork();
	if (child == 0) {
		long then = counter;
		sleep_ms(30);
		PROMISE(counter == then && local == 7 && mine == 9);
		in_thread(add, &local);
		in_thread(add, &local);
		PROMISE(local == 17);
		exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return unused;
}

int main(void)
{
	pthread_t thread = start(count, NULL);
	in_thread(fork_one, NULL);
	gate_open(&gate, 1);
	join(thread);
	return 0;
}
