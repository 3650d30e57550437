/* SPDX-License-Identifier: MIT */
/* A named semaphore is one for the threads of a process and for other processes, opened twice or inherited, whichever
 * thread opened it; it is closed when it was closed as often as opened. */
#include "promise.h"

#include <limits.h>
#include <semaphore.h>

static sem_t *semaphore;
static char name[64];

static void *post(void *unused)
{
	sem_t *mine = sem_open(name, 0);
	PROMISE(mine == semaphore && sem_post(mine) == 0 && sem_close(mine) == 0);
	return unused;
}

static void *open_unnamed(void *unused)
{
	sem_t *again;
	PROMISE(sem_open("", O_CREAT, 0600, 0) == SEM_FAILED && errno == EINVAL);
	PROMISE(sem_open("/a/b", O_CREAT, 0600, 0) == SEM_FAILED);
	PROMISE(sem_open(name, O_CREAT, 0600, SEM_VALUE_MAX + 1u) == SEM_FAILED && errno == EINVAL);
	semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
	again = sem_open(name, O_CREAT, 0600, 9);
	PROMISE(semaphore != SEM_FAILED && semaphore == again && sem_close(again) == 0 && sem_unlink(name) == 0);
	return unused;
}

static void *take(void *unused)
{
	PROMISE(sem_trywait(semaphore) == 0);
	return unused;
}

static void *close_it(void *unused)
{
	PROMISE(sem_close(semaphore) == 0 && sem_close(semaphore) == -1 && errno == EINVAL);
	return unused;
}

static void in_threads(void)
{
	int status, value;
	in_thread(open_unnamed, NULL);
	in_thread(take, NULL);
	PROMISE(sem_getvalue(semaphore, &value) == 0 && value == 1);
	pid_t child = fork();
	if (child == 0) {
		in_thread(take, NULL);
		_exit(sem_trywait(semaphore) == -1 && errno == EAGAIN ? 0 : 1);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	PROMISE(sem_trywait(semaphore) == -1 && errno == EAGAIN);
	in_thread(close_it, NULL);
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
	in_threads();
	child = fork();
	if (child == 0) {
		in_threads();
		_exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
