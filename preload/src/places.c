/* SPDX-License-Identifier: MIT */
/*
 * Ranges of addresses; places.h says what they are for.
 *
 * The kernel takes the highest room that is large enough below what it keeps for the stack, which is five sixths of all
 * addresses where that has no limit. In the layout of old (personality(2): ADDR_COMPAT_LAYOUT) it takes the lowest, from a
 * third of them on, as a software engine does. A process finds room in its own range, and in what is left of the main
 * thread's, with which it began: so that one is chosen to be looked at last.
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

/* Where the stack has no limit. */
#define SIXTH_LOWEST (8ull << 40) /* above all that has a fixed address (layout.h) */
#define SIXTH_TOP 0x155555556000ull

/* In the layout of old; executables begin at two thirds. */
#define COMPAT_LOWEST 0x2aaaaaaab000ull
#define COMPAT_TOP (85ull << 40)

/* An engine's own memory begins at ENGINE_TOP. Of what lies below it gives programs the lowest room from ENGINE_LOWEST
 * on, and keeps ENGINE_BREAK for the break. */
#define ENGINE_LOWEST (64ull << 20)
#define ENGINE_PLACES (4ull << 30) /* above all that is loaded, but for what is linked to be further up */
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

static uint64_t size_of(struct extent extent) { return extent.end > extent.start ? extent.end - extent.start : 0; }

struct taken {
	struct extent used;    /* from the first mapping's beginning to the last one's end */
	struct extent largest; /* between two, and taken as a whole */
};

/* Take what is free between mappings that begin in [from, to), but for `kept` bytes where it cannot be had as a whole. */
static struct taken take_between(uint64_t from, uint64_t to, uint64_t kept)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	struct taken ret = {{0, 0}, {0, 0}};
	if (!ptw_mappings_init(&all, 0))
		return ret;
	while (ptw_mappings_next(&all, &line)) {
		if (line.start < from || line.start >= to)
			continue;
		if (ret.used.start == 0)
			ret.used.start = line.start;
		else if (line.start > ret.used.end && !line.is_stack) { /* the stack has its gap below */
			struct extent free = {ret.used.end, line.start};
			if (!take(free.start, free.end)) {
				if (size_of(free) > kept)
					take(free.start + kept, free.end);
			} else if (size_of(free) > size_of(ret.largest)) {
				ret.largest = free;
			}
		}
		ret.used.end = line.end;
	}
	ptw_mappings_deinit(&all);
	return ret;
}

/* Where the lowest room is taken: the main thread's range is the highest. Of what was taken as a whole, what lies above
 * `lowest` is divided. */
static void divide_for_lowest_first(struct extent taken, uint64_t lowest, uint64_t size)
{
	uint64_t start = taken.start > lowest ? taken.start : lowest;
	uint64_t first = (start + size - 1) / size, end = taken.end / size;
	if (end < first + 2)
		return;
	plan.from = first * size;
	plan.size = size;
	plan.count = end - first < PTW_PLACES ? (uint32_t)(end - first) : PTW_PLACES;
	plan.down = true;
}

static void plan_for_the_compatible_layout(void)
{
	struct extent used = take_between(COMPAT_LOWEST, COMPAT_TOP, 0).used;
	if (used.start == 0 || used.end > COMPAT_TOP || !take(used.end, COMPAT_TOP) ||
	    (used.start > COMPAT_LOWEST && !take(COMPAT_LOWEST, used.start)))
		return;
	divide_for_lowest_first((struct extent){used.end, COMPAT_TOP}, 0, PLACE);
}

/* Where the highest room is taken: the main thread's range is the lowest. */
static void plan_for_highest_first(uint64_t lowest, uint64_t top)
{
	struct extent used = take_between(lowest, top, 0).used;
	uint64_t count = used.start > lowest ? (used.start - lowest) / PLACE : 0;
	if (count < 2 || !take(lowest, used.start))
		return;
	plan.from = lowest;
	plan.size = PLACE;
	plan.count = count < PTW_PLACES ? (uint32_t)count : PTW_PLACES;
}

/* By where it puts what may lie anywhere. */
static void plan_for_the_kernel(void)
{
	uint64_t place = (uint64_t)PTW_SYS(SYS_mmap, 0, PTW_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((long)place < 0)
		return;
	PTW_SYS(SYS_munmap, place, PTW_PAGE, 0, 0, 0, 0);
	if (place >= LOWEST)
		plan_for_highest_first(LOWEST, TOP);
	else if (place >= COMPAT_LOWEST)
		plan_for_the_compatible_layout();
	else if (place >= SIXTH_LOWEST && place < SIXTH_TOP)
		plan_for_highest_first(SIXTH_LOWEST, SIXTH_TOP);
}

static void plan_for_an_engine(void)
{
	struct taken taken = take_between(ENGINE_LOWEST, ENGINE_TOP, ENGINE_BREAK);
	uint64_t end = taken.used.end;
	if (end == 0 || end > ENGINE_TOP || (!take(end, ENGINE_TOP) && !take(end + ENGINE_BREAK, ENGINE_TOP)))
		return;
	struct extent above = {end + ENGINE_BREAK, ENGINE_TOP};
	divide_for_lowest_first(size_of(taken.largest) > size_of(above) ? taken.largest : above, ENGINE_PLACES,
				ENGINE_PLACE);
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
