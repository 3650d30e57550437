/* SPDX-License-Identifier: MIT */
/* Mutex, condition, barrier, rwlock, spinlock and semaphore with the process-shared attribute work between
 * processes, with threads in both. */
#include "promise.h"

#include <semaphore.h>

static struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t condition;
	pthread_barrier_t barrier;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spinlock;
	sem_t semaphore;
	int turn, locked, spun, written;
} *shared;

static void *work(void *argument)
{
	int me = (int)(long)argument;
	pthread_barrier_wait(&shared->barrier);
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&shared->mutex);
		while (shared->turn % 2 != me)
			pthread_cond_wait(&shared->condition, &shared->mutex);
		shared->turn++, shared->locked++;
		pthread_cond_broadcast(&shared->condition);
		pthread_mutex_unlock(&shared->mutex);
		pthread_spin_lock(&shared->spinlock);
		shared->spun++;
		pthread_spin_unlock(&shared->spinlock);
		pthread_rwlock_wrlock(&shared->rwlock);
		shared->written++;
		pthread_rwlock_unlock(&shared->rwlock);
	}
	if (me)
		sem_post(&shared->semaphore);
	else
		sem_wait(&shared->semaphore);
	return NULL;
}

int main(void)
{
	int status, pshared;
	pthread_mutexattr_t mutex;
	pthread_condattr_t condition;
	pthread_barrierattr_t barrier;
	pthread_rwlockattr_t rwlock;
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&mutex), pthread_condattr_init(&condition);
	pthread_barrierattr_init(&barrier), pthread_rwlockattr_init(&rwlock);
	PROMISE(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED) == 0);
	PROMISE(pthread_mutexattr_getpshared(&mutex, &pshared) == 0 && pshared == PTHREAD_PROCESS_SHARED);
	PROMISE(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED) == 0);
	PROMISE(pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED) == 0);
	PROMISE(pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED) == 0);
	pthread_mutex_init(&shared->mutex, &mutex), pthread_cond_init(&shared->condition, &condition);
	pthread_barrier_init(&shared->barrier, &barrier, 2), pthread_rwlock_init(&shared->rwlock, &rwlock);
	pthread_spin_init(&shared->spinlock, PTHREAD_PROCESS_SHARED), sem_init(&shared->semaphore, 1, 0);
	pid_t child = fork();
	if (child == 0) {
		in_thread(work, (void *)1);
		_exit(0);
	}
	in_thread(work, (void *)0);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	PROMISE(shared->locked == 100 && shared->spun == 100 && shared->written == 100);
	return 0;
}
