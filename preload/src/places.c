/* SPDX-License-Identifier: MIT */
/*
 * Ranges of addresses; places.h says what they are for.
 *
 * The kernel takes the highest room that is large enough, a software engine the lowest. A process finds room in its own
 * range, and in what is left of the main thread's, with which it began: so that one is chosen to be looked at last.
 *
 * A range whose process ended and left nothing in it is given out again, after all the others: a process may still have
 * there what its maker has taken back. Where more processes live than there are ranges, some share one.
 */
#define _GNU_SOURCE
#include "places.h"

#include "engine.h"
#include "mappings.h"
#include "segments.h"
#include "slots.h"
#include "unwind.h"

#include <sys/mman.h>

#define LOWEST (88ull << 40) /* above executables, and the break behind them */
#define PLACE (16ull << 30)
#define TOP (1ull << 47)

/* An engine's own memory begins at ENGINE_TOP. Of what lies below it gives programs the lowest room from ENGINE_LOWEST
 * on, and keeps ENGINE_BREAK for the break. */
#define ENGINE_LOWEST (64ull << 20)
#define ENGINE_PLACES (4ull << 30) /* above all that is loaded */
#define ENGINE_PLACE (512ull << 20)
#define ENGINE_TOP (64ull << 30)
#define ENGINE_BREAK (8ull << 20)

static struct {
	uint64_t from, size; /* of each */
	uint32_t count;      /* 0: nothing was done */
	bool down;           /* the next one lies below */
} plan;

static PTW_CHANGING uint64_t own; /* where this process's begins */

static bool take(uint64_t start, uint64_t end)
{
	return PTW_SYS(SYS_mmap, start, end - start, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == (long)start;
}

/* --- the first process --- */

struct extent {
	uint64_t start, end; /* 0: there is none */
};

/* Take what is free between mappings that begin in [from, to), but for `kept` bytes where it cannot be had as a whole.
 * Returns from the first one's beginning to the last one's end. */
static struct extent take_between(uint64_t from, uint64_t to, uint64_t kept)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	struct extent ret = {0, 0};
	if (!ptw_mappings_init(&all, 0))
		return ret;
	while (ptw_mappings_next(&all, &line)) {
		if (line.start < from || line.start >= to)
			continue;
		if (ret.start == 0)
			ret.start = line.start;
		else if (line.start > ret.end && !line.is_stack && /* the stack has its gap below */
			 !take(ret.end, line.start) && line.start - ret.end > kept)
			take(ret.end + kept, line.start);
		ret.end = line.end;
	}
	ptw_mappings_deinit(&all);
	return ret;
}

static void plan_for_the_kernel(void)
{
	struct extent used = take_between(LOWEST, TOP, 0);
	uint64_t count = used.start > LOWEST ? (used.start - LOWEST) / PLACE : 0;
	if (count < 2 || !take(LOWEST, used.start))
		return;
	plan.from = LOWEST;
	plan.size = PLACE;
	plan.count = count < PTW_PLACES ? (uint32_t)count : PTW_PLACES;
}

static void plan_for_an_engine(void)
{
	struct extent used = take_between(ENGINE_LOWEST, ENGINE_TOP, ENGINE_BREAK);
	if (used.start == 0 || used.end > ENGINE_PLACES ||
	    (!take(used.end, ENGINE_TOP) && !take(used.end + ENGINE_BREAK, ENGINE_TOP)))
		return;
	plan.from = ENGINE_PLACES;
	plan.size = ENGINE_PLACE;
	plan.count = (ENGINE_TOP - ENGINE_PLACES) / ENGINE_PLACE;
	plan.down = true;
}

void ptw_places_init(void)
{
	if (ptw_under_engine())
		plan_for_an_engine();
	else
		plan_for_the_kernel();
	if (plan.count == 0)
		return;
	ptw_unwind_share(plan.from, plan.count * plan.size);
	ptw_places_begin();
}

/* --- each process --- */

bool ptw_places_contain(uint64_t address) { return address - plan.from < plan.count * plan.size; }

int ptw_places_flags(uint64_t address) { return ptw_places_contain(address) ? MAP_FIXED : MAP_FIXED_NOREPLACE; }

/* Numbers count from the one that is looked at last. */
static uint64_t start_of(uint32_t number)
{
	return plan.from + (plan.down ? plan.count - 1 - number : number) * plan.size;
}

static uint32_t number_of(uint64_t start)
{
	uint32_t number = (uint32_t)((start - plan.from) / plan.size);
	return plan.down ? plan.count - 1 - number : number;
}

static uint64_t bit_of(uint32_t number) { return 1ull << number % 64; }

static uint64_t *word_of(uint32_t number) { return &ptw_shared->places_used[number / 64]; }

/* The next that is free, of those that are looked at before the main thread's. */
static uint32_t next_number(void)
{
	uint32_t first = ptw_shared->places_given ? ptw_shared->place_of_main + 1 : 0, number = first;
	if (first >= plan.count)
		first = 0;
	for (uint32_t i = first; i < plan.count; i++) {
		uint32_t turn = __atomic_fetch_add(&ptw_shared->places_given, 1, __ATOMIC_RELAXED);
		number = first + turn % (plan.count - first);
		if (!(__atomic_fetch_or(word_of(number), bit_of(number), __ATOMIC_ACQ_REL) & bit_of(number)))
			break;
	}
	return number;
}

void ptw_places_begin(void)
{
	if (plan.count == 0)
		return;
	own = start_of(next_number());
	PTW_SYS(SYS_munmap, own, plan.size, 0, 0, 0, 0);
}

void ptw_places_forked(void)
{
	if (plan.count)
		ptw_shared->place_of_main = number_of(own);
}

void ptw_places_end(void)
{
	if (!own)
		return;
	if (!take(own, own + plan.size)) /* mostly nothing is there */
		ptw_segments_leave(own, own + plan.size);
	else
		__atomic_fetch_and(word_of(number_of(own)), ~bit_of(number_of(own)), __ATOMIC_ACQ_REL);
}
