/* SPDX-License-Identifier: MIT */
/* The working directory and the umask are one for all threads. */
#include "promise.h"

#include <sys/stat.h>

static struct gate gate = GATE;

static void *early(void *unused)
{
	char path[4096];
	gate_wait(&gate, 1);
	PROMISE(getcwd(path, sizeof path) && strcmp(path, "/") == 0 && umask(0) == 027);
	PROMISE(chdir("/tmp") == 0);
	return unused;
}

int main(void)
{
	char path[4096];
	pthread_t thread = start(early, NULL);
	PROMISE(chdir("/") == 0);
	umask(027);
	gate_open(&gate, 1);
	join(thread);
	PROMISE(getcwd(path, sizeof path) && strcmp(path, "/tmp") == 0 && umask(077) == 0);
	return 0;
}
