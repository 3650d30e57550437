/* SPDX-License-Identifier: MIT */
/* After fork parent and child have memory of their own: globals, heap, mappings and stacks, in both directions. */
#include "promise.h"

static int global = 1;
static char *heap, *mapped;
static int to_child[2], to_parent[2];

static void check(int *local, int value)
{
	PROMISE(global == value && heap[100] == value && mapped[5000] == value && *local == value);
}

static void set(int *local, int value)
{
	global = value, heap[100] = (char)value, mapped[5000] = (char)value, *local = value;
}

static void *fork_one(void *unused)
{
	int local = 1, status;
	char byte;
	pid_t child = fork();
	if (child == 0) {
		check(&local, 1);
		set(&local, 2);
		PROMISE(write(to_parent[1], "x", 1) == 1 && read(to_child[0], &byte, 1) == 1);
		check(&local, 2);
		_exit(0);
	}
	PROMISE(read(to_parent[0], &byte, 1) == 1);
	check(&local, 1);
	set(&local, 3);
	PROMISE(write(to_child[1], "x", 1) == 1);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	check(&local, 3);
	set(&local, 1);
	return unused;
}

int main(void)
{
	heap = malloc(10000);
	mapped = untouched(4);
	heap[100] = mapped[5000] = 1;
	PROMISE(pipe(to_child) == 0 && pipe(to_parent) == 0);
	fork_one(NULL);
	in_thread(fork_one, NULL);
	return 0;
}
