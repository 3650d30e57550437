/* SPDX-License-Identifier: MIT */
/* pthread_atfork handlers are the program's, whichever thread registered them, also after the one that forks was made;
 * there may be thousands. A thread on the smallest stack of its own forks, too, and is told the size it asked for. */
#include "promise.h"

#include <limits.h>

enum { MANY = 2000 };

static struct gate gate = GATE;
static char order[8];
static int prepared, in_parent, in_child;

static void note(char letter) { order[strlen(order)] = letter; }
static void first_prepare(void) { note('p'); }
static void first_child(void) { note('c'); }
static void last_prepare(void) { note('q'); }
static void last_child(void) { note('d'); }
static void prepare(void) { prepared++; }
static void parent(void) { in_parent++; }
static void child(void) { in_child++; }

static void *fork_at_last(void *unused)
{
	int status;
	gate_wait(&gate, 1);
	pid_t pid = fork();
	if (pid == 0)
		_exit(!(strcmp(order, "qpcd") == 0 && prepared == MANY && in_child == MANY && in_parent == 0));
	PROMISE(strcmp(order, "qp") == 0 && prepared == MANY && in_parent == MANY && in_child == 0);
	PROMISE(waitpid(pid, &status, 0) == pid && status == 0);
	return unused;
}

static void *register_many(void *unused)
{
	PROMISE(pthread_atfork(first_prepare, NULL, first_child) == 0);
	for (int i = 0; i < MANY; i++)
		PROMISE(pthread_atfork(prepare, parent, child) == 0);
	return unused;
}

static void *fork_on_little(void *told)
{
	pthread_attr_t attributes;
	size_t size;
	int status;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getstacksize(&attributes, &size) == 0 && size == *(size_t *)told);
	pthread_attr_destroy(&attributes);
	pid_t pid = fork();
	if (pid == 0)
		_exit(7);
	PROMISE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return told;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread = start(fork_at_last, NULL), small;
	size_t size = (size_t)PTHREAD_STACK_MIN;
	in_thread(register_many, NULL);
	PROMISE(pthread_atfork(last_prepare, NULL, last_child) == 0);
	gate_open(&gate, 1);
	join(thread);
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setstacksize(&attributes, size) == 0);
	PROMISE(pthread_create(&small, &attributes, fork_on_little, &size) == 0);
	join(small);
	return 0;
}
