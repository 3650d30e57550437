/* SPDX-License-Identifier: MIT */
/*
 * How much of its own time a thread may spend on a kind of event. Every so many events the processor time that passed is
 * looked at: while the events come too thick, the level rises a step at a time, and whoever causes them does something
 * coarser; when they have become rare it falls again. A thread's own; signal-safe with signals blocked.
 */
#ifndef PTW_BUDGET_H
#define PTW_BUDGET_H

#include "sys.h"

#include <time.h>

enum {
	PTW_BUDGET_SAMPLE = 256,      /* events between two looks at the clock */
	PTW_BUDGET_EVENT_NS = 40000,  /* processor time in which one event is not too much: an event costs a fourth of it */
};

struct ptw_budget {
	uint32_t events;
	uint32_t level; /* 0: no need; else least … most */
	uint32_t least, most;
	uint32_t sample; /* 0: PTW_BUDGET_SAMPLE */
	uint64_t since; /* nanoseconds of processor time */
};

static inline void ptw_budget_look(struct ptw_budget *budget)
{
	struct timespec time = {0, 0};
	PTW_SYS(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time, 0, 0, 0, 0);
	uint64_t now = (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
	uint64_t passed = now - budget->since, allowed = (uint64_t)budget->events * PTW_BUDGET_EVENT_NS;
	if (passed < allowed && budget->level < budget->most)
		budget->level = budget->level == 0 ? budget->least : budget->level + 1;
	else if (passed > 4 * allowed && budget->level > 0)
		budget->level = budget->level == budget->least ? 0 : budget->level - 1;
	budget->since = now;
	budget->events = 0;
}

static inline void ptw_budget_spend(struct ptw_budget *budget, uint32_t events)
{
	budget->events += events;
	if (__builtin_expect(budget->events >= (budget->sample ? budget->sample : PTW_BUDGET_SAMPLE), 0))
		ptw_budget_look(budget);
}

/* For a new thread. */
static inline void ptw_budget_begin(struct ptw_budget *budget)
{
	budget->events = budget->level = 0;
	budget->since = 0;
}

#endif
