/* SPDX-License-Identifier: MIT */
/* Threads that sleep or wait are not interrupted by another that changes a signal's action or unmaps memory. */
#include "promise.h"

#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { WAYS = 8, TIME = 150 };

static sem_t semaphore;
static int ready;

static int wait_in(long way)
{
	struct timespec span = {0, TIME * MS}, until = after_ms(CLOCK_REALTIME, TIME);
	struct timeval time = {0, TIME * 1000};
	struct epoll_event event;
	switch (way) {
	case 0:
		return nanosleep(&span, NULL);
	case 1:
		return clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
	case 2:
		return poll(NULL, 0, TIME);
	case 3:
		return ppoll(NULL, 0, &span, NULL);
	case 4:
		return select(0, NULL, NULL, NULL, &time);
	case 5:
		return epoll_wait(epoll_create1(0), &event, 1, TIME);
	case 6:
		return usleep(TIME * 1000);
	default:
		PROMISE(sem_timedwait(&semaphore, &until) == -1);
		return errno == ETIMEDOUT ? 0 : -1;
	}
}

static void *wait_long(void *way)
{
	int64_t begin = now_ns(CLOCK_MONOTONIC);
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	PROMISE(wait_in((long)way) == 0);
	PROMISE(now_ns(CLOCK_MONOTONIC) - begin >= (TIME - 2) * (int64_t)MS);
	return NULL;
}

static void handler(int number) { (void)number; }

int main(void)
{
	pthread_t threads[WAYS];
	struct sigaction action = {.sa_handler = handler};
	sem_init(&semaphore, 0, 0);
	for (long way = 0; way < WAYS; way++)
		threads[way] = start(wait_long, (void *)way);
	while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < WAYS)
		sleep_ms(1);
	for (int i = 0; i < 10; i++) {
		sleep_ms(5);
		action.sa_flags = i % 2 ? SA_RESTART : 0;
		PROMISE(sigaction(SIGUSR1, &action, NULL) == 0);
		char *memory = untouched(2);
		memory[0] = 1;
		PROMISE(mprotect(memory, PAGE, PROT_NONE) == 0 && munmap(memory, 2 * PAGE) == 0);
	}
	for (int way = 0; way < WAYS; way++)
		join(threads[way]);
	return 0;
}
