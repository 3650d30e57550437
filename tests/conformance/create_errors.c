/* SPDX-License-Identifier: MIT */
/* pthread_create without address space for the stack is EAGAIN, and the program goes on. */
#include "promise.h"

#include <sys/resource.h>

static void *run(void *argument) { return argument; }

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setstacksize(&attributes, 1ul << 46) == 0);
	PROMISE(pthread_create(&thread, &attributes, run, NULL) == EAGAIN);
	PROMISE(in_thread(run, &thread) == &thread);
	return 0;
}
