/* SPDX-License-Identifier: MIT */
/* pthread_create fails with EINVAL for a priority that the policy has not, and for processors that there are not. */
#include "promise.h"

#include <sched.h>

static void *never(void *unused)
{
	PROMISE(!"a thread runs that was refused");
	return unused;
}

static void refused(const pthread_attr_t *attributes)
{
	cpu_set_t before, after;
	pthread_t thread;
	PROMISE(sched_getaffinity(0, sizeof before, &before) == 0);
	PROMISE(pthread_create(&thread, attributes, never, NULL) == EINVAL);
	PROMISE(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
}

int main(void)
{
	const struct sched_param one = {1};
	pthread_attr_t attributes;
	cpu_set_t none;
	pthread_attr_init(&attributes);
	PROMISE(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED) == 0);
	PROMISE(pthread_attr_setschedpolicy(&attributes, SCHED_FIFO) == 0);
	PROMISE(pthread_attr_setschedparam(&attributes, &one) == 0);
	PROMISE(pthread_attr_setschedpolicy(&attributes, SCHED_OTHER) == 0); /* has priority 0 only */
	refused(&attributes);
	pthread_attr_destroy(&attributes);
	pthread_attr_init(&attributes);
	CPU_ZERO(&none);
	CPU_SET(CPU_SETSIZE - 1, &none);
	PROMISE(pthread_attr_setaffinity_np(&attributes, sizeof none, &none) == 0);
	refused(&attributes);
	pthread_attr_destroy(&attributes);
	return 0;
}
