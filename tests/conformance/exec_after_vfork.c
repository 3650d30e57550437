/* SPDX-License-Identifier: MIT */
/* A child made by vfork execs for itself, whichever thread made it: the program and its other threads go on. Path,
 * arguments and environment may lie where the thread has not looked for long. */
#include "promise.h"

enum { ROUNDS = 5 };

static struct gate gate = GATE;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *fresh;

static void *bystander(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

static void *fill(void *unused)
{
	char **words = (char **)fresh;
	char *path = fresh + PAGE, *option = fresh + 2 * PAGE, *script = fresh + 3 * PAGE, *variable = fresh + 4 * PAGE;
	strcpy(path, "/bin/sh");
	strcpy(option, "-c");
	strcpy(script, "exit $CODE");
	strcpy(variable, "CODE=7");
	memcpy(words, (char *[]){path, option, script, NULL, variable, NULL}, 6 * sizeof *words);
	return unused;
}

static void *run(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		int status = 0;
		pid_t child = vfork();
		if (child == 0) {
			char **words = (char **)fresh;
			execve(fresh + PAGE, words, words + 4);
			_exit(99);
		}
		PROMISE(child > 0 && waitpid(child, &status, 0) == child);
		PROMISE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

int main(void)
{
	fresh = untouched(5);
	pthread_t other = start(bystander, NULL);
	in_thread(fill, NULL);
	run(NULL);
	in_thread(run, NULL);
	gate_open(&gate, 1);
	join(other);
	return 0;
}
