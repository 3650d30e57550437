/* SPDX-License-Identifier: MIT */
/* pthread_atfork handlers run in their order in the forking thread: prepare backwards, parent and child
 * forwards. */
#include "promise.h"

static char order[16];

static void note(char letter) { order[strlen(order)] = letter; }
static void prepare1(void) { note('p'); }
static void prepare2(void) { note('q'); }
static void parent1(void) { note('a'); }
static void parent2(void) { note('b'); }
static void child1(void) { note('c'); }
static void child2(void) { note('d'); }

static void *fork_one(void *unused)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(strcmp(order, "qpcd") != 0);
	PROMISE(strcmp(order, "qpab") == 0);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return unused;
}

int main(void)
{
	pthread_atfork(prepare1, parent1, child1);
	pthread_atfork(prepare2, parent2, child2);
	in_thread(fork_one, NULL);
	return 0;
}
