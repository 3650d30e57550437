/* SPDX-License-Identifier: MIT */
/*
 * Ranges of addresses; places.h says what they are for.
 *
 * The kernel takes the highest room that is large enough. So the first process has the lowest range, each later one the
 * next above, and what it inherited from the process it was cloned from lies below. After PLACES processes the ranges
 * are used again.
 */
#define _GNU_SOURCE
#include "places.h"

#include "mappings.h"
#include "segments.h"
#include "slots.h"
#include "unwind.h"

#include <sys/mman.h>

#define LOWEST (88ull << 40) /* above executables, and the break behind them */
#define PLACE (16ull << 30)
#define TOP (1ull << 47)

static uint64_t places; /* 0: nothing was done */
static PTW_CHANGING uint64_t own; /* where this process's begins */

static bool take(uint64_t start, uint64_t end)
{
	return PTW_SYS(SYS_mmap, start, end - start, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == (long)start;
}

void ptw_places_init(void)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	uint64_t end = 0, lowest = 0;
	if (!ptw_mappings_init(&all, 0))
		return;
	while (ptw_mappings_next(&all, &line)) {
		if (line.start < LOWEST || line.start >= TOP)
			continue;
		if (lowest == 0)
			lowest = line.start;
		else if (line.start > end && !line.is_stack) /* the stack has its gap below */
			take(end, line.start);
		end = line.end;
	}
	ptw_mappings_deinit(&all);
	uint64_t count = lowest > LOWEST ? (lowest - LOWEST) / PLACE : 0;
	if (count < 2 || !take(LOWEST, lowest))
		return;
	places = count;
	ptw_unwind_share(LOWEST, count * PLACE);
	ptw_places_begin();
}

bool ptw_places_contain(uint64_t address) { return address - LOWEST < places * PLACE; }

int ptw_places_flags(uint64_t address) { return ptw_places_contain(address) ? MAP_FIXED : MAP_FIXED_NOREPLACE; }

void ptw_places_begin(void)
{
	if (places == 0)
		return;
	own = LOWEST + __atomic_fetch_add(&ptw_shared->places, 1, __ATOMIC_RELAXED) % places * PLACE;
	PTW_SYS(SYS_munmap, own, PLACE, 0, 0, 0, 0);
}

void ptw_places_end(void)
{
	if (own && !take(own, own + PLACE)) /* mostly nothing is there */
		ptw_segments_leave(own, own + PLACE);
}
