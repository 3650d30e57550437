/* SPDX-License-Identifier: MIT */
/* Sleeps and timed waits of threads take the time they were given, however often another thread renames them meanwhile. */
#include "promise.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <threads.h>

enum { WAYS = 12, TIME = 1000, EVERY = 50, PATIENCE = 400 };

static int ended, begun;

static int wait_on_semaphore(const struct timespec *span)
{
	int set = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf down = {0, -1, 0};
	int result = semtimedop(set, &down, 1, span), error = errno;
	semctl(set, 0, IPC_RMID);
	return result == -1 && error == EAGAIN ? 0 : -1;
}

static int wait_in(long way)
{
	struct timespec span = {TIME / 1000, TIME % 1000 * MS};
	struct timeval time = {TIME / 1000, TIME % 1000 * 1000};
	struct epoll_event event;
	switch (way) {
	case 0:
		return nanosleep(&span, NULL);
	case 1:
		return clock_nanosleep(CLOCK_MONOTONIC, 0, &span, &span);
	case 2:
		span = after_ms(CLOCK_REALTIME, TIME);
		return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &span, NULL);
	case 3:
		return usleep(TIME * 1000);
	case 4:
		return (int)sleep(TIME / 1000);
	case 5:
		return thrd_sleep(&span, NULL);
	case 6:
		return poll(NULL, 0, TIME);
	case 7:
		return ppoll(NULL, 0, &span, NULL);
	case 8:
		return select(0, NULL, NULL, NULL, &time);
	case 9:
		return pselect(0, NULL, NULL, NULL, &span, NULL);
	case 10:
		return epoll_wait(epoll_create1(0), &event, 1, TIME);
	default:
		return wait_on_semaphore(&span);
	}
}

static void *wait_long(void *way)
{
	int64_t begin = now_ns(CLOCK_MONOTONIC);
	__atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
	PROMISE(wait_in((long)way) == 0);
	PROMISE(now_ns(CLOCK_MONOTONIC) - begin >= (TIME - 2) * (int64_t)MS);
	__atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(void)
{
	pthread_t threads[WAYS];
	int renamed = 0;
	for (long way = 0; way < WAYS; way++)
		threads[way] = start(wait_long, (void *)way);
	while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < WAYS)
		sleep_ms(1);
	/* not at the same time: one that waits anew each time would never end */
	while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < WAYS) {
		for (int way = 0; way < WAYS; way++)
			pthread_setname_np(threads[way], renamed % 2 ? "even" : "odd");
		PROMISE(++renamed < PATIENCE);
		sleep_ms(EVERY);
	}
	for (int way = 0; way < WAYS; way++)
		join(threads[way]);
	return 0;
}
