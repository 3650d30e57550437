/* SPDX-License-Identifier: MIT */
/* POSIX timers notify by signal, by a signal to one thread, and by a thread of their own. */
#include "promise.h"

static struct gate gate = GATE;
static volatile int runs;
static volatile pthread_t ran_in;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	PROMISE(info->si_code == SI_TIMER && info->si_value.sival_int == 9);
	ran_in = pthread_self();
	runs++;
}

static void notify(union sigval value)
{
	PROMISE(value.sival_ptr == &gate);
	gate_open(value.sival_ptr, 1);
}

static void fire(struct sigevent *event)
{
	timer_t timer;
	struct itimerspec soon = {{0, 0}, {0, 5 * MS}}, left;
	int before = runs;
	PROMISE(timer_create(CLOCK_MONOTONIC, event, &timer) == 0);
	PROMISE(timer_settime(timer, 0, &soon, NULL) == 0 && timer_gettime(timer, &left) == 0);
	if (event->sigev_notify == SIGEV_THREAD)
		gate_wait(&gate, 1);
	else
		for (int i = 0; i < 5000 && runs == before; i++)
			sleep_ms(1);
	PROMISE(timer_delete(timer) == 0);
}

static void *to_me(void *unused)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 9};
	event._sigev_un._tid = gettid();
	fire(&event);
	PROMISE(runs == 2 && pthread_equal(ran_in, pthread_self()));
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 9};
	sigaction(SIGRTMIN, &action, NULL);
	fire(&event);
	PROMISE(runs == 1);
	in_thread(to_me, NULL);
	event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify,
				  .sigev_value.sival_ptr = &gate};
	fire(&event);
	return 0;
}
