// SPDX-License-Identifier: MIT
/*
 * Checks of wrapper/src/urgency.c on the thread that runs them, as the kernel tells it. Ends with 0, with 77 where the
 * kernel refuses what is checked or has one processor, or aborts at the line that is wrong.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "urgency.h"

#define CHECK(truth)                                                                \
	do {                                                                        \
		if (!(truth)) {                                                     \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #truth); \
			abort();                                                    \
		}                                                                   \
	} while (0)

enum { WAKE = 1 << 10, RING = 1 << 16, ALARM = WAKE + (RING - WAKE) / 4, CALM_TURNS = 64 };

static int is_usual(void)
{
	return sched_getscheduler(0) == SCHED_OTHER && getpriority(PRIO_PROCESS, 0) == -5;
}

static int is_high(void)
{
	return sched_getscheduler(0) == SCHED_RR;
}

static void check_urgency(void)
{
	struct ptw_urgency urgency;

	ptw_urgency_init(&urgency, WAKE, RING);
	CHECK(is_usual());
	ptw_urgency_turn(&urgency, ALARM - 1);
	CHECK(is_usual());
	ptw_urgency_turn(&urgency, ALARM);
	CHECK(is_high());
	for (int i = 0; i < CALM_TURNS - 1; i++)
		ptw_urgency_turn(&urgency, 0);
	CHECK(is_high());
	ptw_urgency_turn(&urgency, ALARM - 1);	/* not calm: they count from the begin again */
	for (int i = 0; i < CALM_TURNS - 1; i++)
		ptw_urgency_turn(&urgency, WAKE);
	CHECK(is_high());
	ptw_urgency_turn(&urgency, WAKE);
	CHECK(is_usual());
}

/* Records made: `here` on the processor where we began, the others elsewhere. */
struct made {
	unsigned int cpu;
	uint64_t here;
};

static uint64_t made_on(const void *context, unsigned int cpu)
{
	const struct made *made = context;

	return cpu == made->cpu ? made->here : 0;
}

/* Whether the thread moved when so many of all records were made where it is. */
static int moved(uint64_t here, uint64_t all)
{
	struct made made = {.cpu = (unsigned int)sched_getcpu()};
	struct ptw_place place;
	cpu_set_t before;
	cpu_set_t after;
	int told;

	CHECK(!sched_getaffinity(0, sizeof(before), &before));
	ptw_place_init(&place);
	CHECK(!ptw_place_turn(&place, 0, made_on, &made));	/* nothing is known yet */
	if ((unsigned int)sched_getcpu() != made.cpu)
		return moved(here, all);	/* the kernel moved it: once more */
	made.here = here;
	told = ptw_place_turn(&place, all, made_on, &made);
	CHECK(!sched_getaffinity(0, sizeof(after), &after));
	CHECK(CPU_EQUAL(&before, &after));
	CHECK(!told || (unsigned int)sched_getcpu() != made.cpu);
	return told;
}

int main(void)
{
	cpu_set_t allowed;

	if (setpriority(PRIO_PROCESS, 0, -20) || sched_getaffinity(0, sizeof(allowed), &allowed) ||
	    CPU_COUNT(&allowed) < 2)
		return 77;
	check_urgency();
	/* real-time, so that nothing but the checks themselves moves it */
	CHECK(!sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1}));
	CHECK(moved(60000, 60000));
	CHECK(moved(30001, 60000));
	CHECK(!moved(30000, 60000));	/* as many come from others */
	CHECK(!moved(0, 60000));
	CHECK(!moved(1000, 1000));	/* too few to tell */
	CPU_ZERO(&allowed);
	CPU_SET(sched_getcpu(), &allowed);
	CHECK(!sched_setaffinity(0, sizeof(allowed), &allowed));
	CHECK(!moved(60000, 60000));	/* there is no other */
	return 0;
}
