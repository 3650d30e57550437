/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "urgency.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	USUAL_NICE = -5,
	HIGH_NICE = -20,	/* where real-time scheduling is refused */
	HIGH_PRIORITY = 1,	/* the lowest of the real-time ones: before all threads that have none */
	CALM_TURNS = 64,	/* a burst that comes in waves is one */
	WINDOW = 1 << 15,	/* records after which it is judged where they come from: to move costs some 20 us */
};

static void be_usual(void)
{
	const struct sched_param none = {0};

	(void)sched_setscheduler(0, SCHED_OTHER, &none);
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), USUAL_NICE);
}

static void be_high(void)
{
	const struct sched_param priority = {.sched_priority = HIGH_PRIORITY};

	if (sched_setscheduler(0, SCHED_RR, &priority))
		(void)setpriority(PRIO_PROCESS, (id_t)gettid(), HIGH_NICE);
}

void ptw_urgency_init(struct ptw_urgency *urgency, uint64_t wake_bytes, uint64_t ring_bytes)
{
	*urgency = (struct ptw_urgency){
		.alarm = wake_bytes + (ring_bytes - wake_bytes) / 4,
		.calm = wake_bytes + (ring_bytes - wake_bytes) / 16,
	};
	be_usual();
}

void ptw_urgency_turn(struct ptw_urgency *urgency, uint64_t used)
{
	if (used >= urgency->alarm) {
		urgency->calm_turns = 0;
		if (!urgency->high)
			be_high();
		urgency->high = 1;
	} else if (urgency->high && used > urgency->calm) {
		urgency->calm_turns = 0;
	} else if (urgency->high && ++urgency->calm_turns >= CALM_TURNS) {
		urgency->high = 0;
		be_usual();
	}
}

void ptw_place_init(struct ptw_place *place)
{
	*place = (struct ptw_place){.cpu = -1};
}

/* Go away from a processor; where we may be is as before then. Returns 1 when that was possible. */
static int leave(int cpu)
{
	cpu_set_t usual;
	cpu_set_t others;

	if (sched_getaffinity(0, sizeof(usual), &usual) || !CPU_ISSET(cpu, &usual))
		return 0;	/* more processors than fit, too: there is one that is free, then */
	others = usual;
	CPU_CLR(cpu, &others);
	if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof(others), &others))
		return 0;
	(void)sched_setaffinity(0, sizeof(usual), &usual);
	return 1;
}

int ptw_place_turn(struct ptw_place *place, uint64_t made, uint64_t (*made_on)(const void *context, unsigned int cpu),
		   const void *context)
{
	int cpu = sched_getcpu();
	uint64_t here;
	int most;

	if (cpu < 0 || (cpu == place->cpu && made - place->made < WINDOW))
		return 0;
	here = made_on(context, (unsigned int)cpu);
	most = cpu == place->cpu && (here - place->made_here) * 2 > made - place->made;
	*place = (struct ptw_place){.cpu = cpu, .made_here = here, .made = made};
	return most && leave(cpu);
}
