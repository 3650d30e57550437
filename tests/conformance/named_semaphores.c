/* SPDX-License-Identifier: MIT */
/* A named semaphore is one for the threads of a process and for other processes, opened twice or inherited. */
#include "promise.h"

#include <semaphore.h>

static sem_t *semaphore;
static char name[64];

static void *post(void *unused)
{
	sem_t *mine = sem_open(name, 0);
	PROMISE(mine == semaphore && sem_post(mine) == 0 && sem_close(mine) == 0);
	return unused;
}

int main(void)
{
	int status;
	snprintf(name, sizeof name, "/conformance.%d", (int)getpid());
	PROMISE(sem_open(name, 0) == SEM_FAILED && errno == ENOENT);
	semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
	PROMISE(semaphore != SEM_FAILED);
	PROMISE(sem_open(name, O_CREAT | O_EXCL, 0600, 0) == SEM_FAILED && errno == EEXIST);
	pthread_t thread = start(post, NULL);
	PROMISE(sem_wait(semaphore) == 0);
	join(thread);
	pid_t child = fork();
	if (child == 0) {
		in_thread(post, NULL);
		PROMISE(sem_post(semaphore) == 0);
		_exit(0);
	}
	PROMISE(sem_wait(semaphore) == 0 && sem_wait(semaphore) == 0);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	PROMISE(sem_close(semaphore) == 0 && sem_unlink(name) == 0);
	return 0;
}
