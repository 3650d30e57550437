/* SPDX-License-Identifier: MIT */
/* All that pthread_setattr_default_np sets is what threads without attributes have, and what they are told of themselves. */
#include "promise.h"

#include <semaphore.h>

static sem_t ended;

static void look(int state, size_t guard, int blocked)
{
	pthread_attr_t attributes;
	sigset_t mask;
	size_t has_guard;
	int has_state;
	PROMISE(pthread_getattr_np(pthread_self(), &attributes) == 0);
	PROMISE(pthread_attr_getdetachstate(&attributes, &has_state) == 0 && has_state == state);
	PROMISE(pthread_attr_getguardsize(&attributes, &has_guard) == 0 && has_guard == guard);
	PROMISE(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGUSR1) == blocked);
	pthread_attr_destroy(&attributes);
}

static void *detached(void *unused)
{
	look(PTHREAD_CREATE_DETACHED, 3 * PAGE, 1);
	sem_post(&ended);
	return unused;
}

static void *joinable(void *unused)
{
	look(PTHREAD_CREATE_JOINABLE, 2 * PAGE, 0);
	PROMISE(pthread_detach(pthread_self()) == 0);
	look(PTHREAD_CREATE_DETACHED, 2 * PAGE, 0);
	sem_post(&ended);
	return unused;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t set;
	PROMISE(sem_init(&ended, 0, 0) == 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setguardsize(&attributes, 3 * PAGE) == 0);
	PROMISE(pthread_attr_setsigmask_np(&attributes, &set) == 0);
	PROMISE(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	PROMISE(pthread_setattr_default_np(&attributes) == 0);
	pthread_attr_destroy(&attributes);
	start(detached, NULL);
	PROMISE(sem_wait(&ended) == 0);
	pthread_attr_init(&attributes); /* attributes of its own: the defaults do not count */
	PROMISE(pthread_attr_setguardsize(&attributes, 2 * PAGE) == 0);
	PROMISE(pthread_create(&thread, &attributes, joinable, NULL) == 0);
	PROMISE(sem_wait(&ended) == 0);
	return 0;
}
