/* SPDX-License-Identifier: MIT */
/* On the smallest stack there is, a thread can throw and catch, be cancelled, and handle a signal. */
#include "promise.h"

#include <climits>
#include <stdexcept>

static struct gate gate = GATE;
static volatile sig_atomic_t handled;

static void on_signal(int) { handled = 1; }

static void *throws(void *unused)
{
	try {
		throw std::runtime_error("thrown");
	} catch (const std::exception &) {
		return unused;
	}
}

static void *waits(void *)
{
	gate_open(&gate, 1);
	for (;;)
		pause();
}

int main()
{
	pthread_attr_t attributes;
	pthread_t thread;
	int data;
	signal(SIGUSR1, on_signal);
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
	PROMISE(pthread_create(&thread, &attributes, throws, &data) == 0 && join(thread) == &data);
	PROMISE(pthread_create(&thread, &attributes, waits, nullptr) == 0);
	gate_wait(&gate, 1);
	PROMISE(pthread_kill(thread, SIGUSR1) == 0);
	while (!handled)
		sleep_ms(1);
	PROMISE(pthread_cancel(thread) == 0 && join(thread) == PTHREAD_CANCELED);
	return 0;
}
