/* SPDX-License-Identifier: MIT */
/* A cancellation unwinds the stack: destructors of C++ objects on it run. */
#include "promise.h"

static int destroyed;
static struct gate gate = GATE;

struct Guard {
	~Guard() { destroyed++; }
};

static void inner()
{
	Guard guard;
	gate_open(&gate, 1);
	sleep_ms(60000);
}

static void *run(void *unused)
{
	Guard guard;
	inner();
	return unused;
}

int main()
{
	pthread_t thread = start(run, nullptr);
	gate_wait(&gate, 1);
	pthread_cancel(thread);
	PROMISE(join(thread) == PTHREAD_CANCELED && destroyed == 2);
	return 0;
}
