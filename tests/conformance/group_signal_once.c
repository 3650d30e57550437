/* SPDX-License-Identifier: MIT */
/* A signal for the process group runs one handler in the process, or ends one sigwait, however many threads it has. */
#include "promise.h"

enum { THREADS = 4 };

static volatile int runs, taken;
static struct gate gate = GATE;

static void handler(int number)
{
	(void)number;
	__atomic_fetch_add(&runs, 1, __ATOMIC_SEQ_CST);
}

static void *idle(void *unused)
{
	gate_wait(&gate, 1);
	return unused;
}

static void *take(void *set)
{
	struct timespec late = {0, 100 * MS};
	for (;;) {
		int number = sigtimedwait(set, NULL, &late);
		if (number == SIGUSR2)
			__atomic_fetch_add(&taken, 1, __ATOMIC_SEQ_CST);
		else if (errno != EINTR) /* it may be the one that runs the handler */
			break;
	}
	PROMISE(errno == EAGAIN);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS], takers[THREADS];
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigset_t set;
	PROMISE(setpgid(0, 0) == 0 || getpgrp() == getpid());
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < THREADS; i++) {
		threads[i] = start(idle, NULL);
		takers[i] = start(take, &set);
	}
	sleep_ms(30);
	PROMISE(kill(0, SIGUSR1) == 0 && killpg(getpgrp(), SIGUSR2) == 0);
	for (int i = 0; i < THREADS; i++)
		join(takers[i]);
	PROMISE(taken == 1 && runs == 1);
	gate_open(&gate, 1);
	for (int i = 0; i < THREADS; i++)
		join(threads[i]);
	return 0;
}
