/* SPDX-License-Identifier: MIT */
/* When a forked process is killed while it holds a robust process-shared mutex, a waiting thread gets
 * EOWNERDEAD. */
#include "promise.h"

static pthread_mutex_t *mutex;

static void *wait_for_it(void *unused)
{
	PROMISE(pthread_mutex_lock(mutex) == EOWNERDEAD);
	PROMISE(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
	return unused;
}

int main(void)
{
	int ends[2];
	char byte;
	pthread_mutexattr_t attributes;
	mutex = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	PROMISE(pthread_mutex_init(mutex, &attributes) == 0 && pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		pthread_mutex_lock(mutex);
		PROMISE(write(ends[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	PROMISE(read(ends[0], &byte, 1) == 1);
	pthread_t thread = start(wait_for_it, NULL);
	sleep_ms(20);
	kill(child, SIGKILL);
	join(thread);
	PROMISE(waitpid(child, NULL, 0) == child);
	return 0;
}
