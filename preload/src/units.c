/* SPDX-License-Identifier: MIT */
/* Units of the heap; units.h says what is guaranteed. */
#define _GNU_SOURCE
#include "units.h"

#include "limits.h"
#include "program.h"
#include "shared_lock.h"
#include "slots.h"
#include "view.h"

#include <string.h>
#include <sys/mman.h>

enum {
	BINS = 24,
	PROBES = 32,
	PUNCH = 4, /* runs of that many units give their memory back */
	SPAN = 4,  /* up to as many are a span's, and near */
};

/* One for what is near, one for what lies behind: there are only runs that gave their memory back when they ended, so
 * nothing there is ever dirty. */
struct bins {
	uint32_t top;  /* units ever given out */
	uint32_t used; /* of them, now */
	uint32_t head[BINS];
};

#define near_bins ((struct bins *)PTW_META_BINS)

static struct bins *bins_of(uint32_t unit) { return near_bins + (unit >= PTW_NEAR_UNITS); }
static uint32_t base_of(const struct bins *bins) { return bins == near_bins ? 0 : (uint32_t)PTW_NEAR_UNITS; }
static uint32_t end_of(const struct bins *bins) { return base_of(bins) + bins->top; }

static uint32_t left(const struct bins *bins)
{
	return (uint32_t)(bins == near_bins ? PTW_NEAR_UNITS : PTW_UNITS - PTW_NEAR_UNITS) - bins->top;
}

/* May so many more be in use? The program may have asked for a limit. */
static bool may_use(uint32_t count)
{
	uint32_t most = __atomic_load_n(&ptw_program_state->most_units, __ATOMIC_ACQUIRE);
	return most == 0 || (uint64_t)near_bins[0].used + near_bins[1].used + count < most;
}

static uint32_t bin_of(uint32_t count) { return 31u - (uint32_t)__builtin_clz(count); }

static void insert(struct bins *bins, uint32_t first, uint32_t count)
{
	struct ptw_unit *unit = &ptw_units[first];
	uint32_t *head = &bins->head[bin_of(count)];
	unit->kind = ptw_units[first + count - 1].kind = PTW_UNIT_FREE;
	unit->run = ptw_units[first + count - 1].run = count;
	unit->prev = 0;
	unit->next = *head;
	if (*head)
		ptw_units[*head - 1].prev = first + 1;
	*head = first + 1;
}

static void withdraw(struct bins *bins, uint32_t first)
{
	struct ptw_unit *unit = &ptw_units[first];
	if (unit->prev)
		ptw_units[unit->prev - 1].next = unit->next;
	else
		bins->head[bin_of(unit->run)] = unit->next;
	if (unit->next)
		ptw_units[unit->next - 1].prev = unit->prev;
	unit->kind = ptw_units[first + unit->run - 1].kind = PTW_UNIT_NEVER;
}

static uint32_t search(const struct bins *bins, uint32_t count)
{
	for (uint32_t bin = bin_of(count); bin < BINS; bin++) {
		uint32_t at = bins->head[bin];
		for (int probe = 0; at && probe < PROBES; probe++, at = ptw_units[at - 1].next)
			if (ptw_units[at - 1].run >= count)
				return at - 1;
	}
	return UINT32_MAX;
}

static uint32_t take(struct bins *bins, uint32_t count)
{
	uint32_t first = may_use(count) ? search(bins, count) : UINT32_MAX;
	if (first != UINT32_MAX) {
		uint32_t run = ptw_units[first].run;
		withdraw(bins, first);
		if (run > count)
			insert(bins, first + count, run - count);
	} else if (count <= left(bins) && may_use(count)) {
		first = end_of(bins);
		bins->top += count;
	}
	if (first != UINT32_MAX)
		bins->used += count;
	return first;
}

static uint64_t alias_of(uint32_t unit) { return ptw_unit_address(unit) - PTW_REGION + PTW_ALIAS; }

void ptw_units_clean(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count && i < PTW_NEAR_UNITS; i++) {
		if (!ptw_units[i].dirty)
			continue;
		uint32_t end = i + 1;
		while (end < first + count && ptw_units[end].dirty)
			end++;
		if (end - i < PUNCH ||
		    PTW_SYS(SYS_madvise, alias_of(i), (end - i) * PTW_UNIT, MADV_REMOVE, 0, 0, 0) != 0)
			memset((void *)alias_of(i), 0, (end - i) * PTW_UNIT);
		if (ptw_private)
			ptw_view_changed(ptw_unit_address(i), (end - i) * PTW_UNIT);
		i = end;
	}
}

static void unlimited(uint32_t first, uint32_t count)
{
	ptw_limits_clear((uint32_t)((ptw_unit_address(first) - PTW_REGION) / PTW_PAGE),
			 count * (uint32_t)(PTW_UNIT / PTW_PAGE));
}

uint32_t ptw_units_take(uint32_t count, bool zeroed)
{
	if (count == 0 || count > PTW_UNITS)
		return UINT32_MAX;
	ptw_lock(&ptw_shared->units_lock);
	uint32_t first = UINT32_MAX;
	if (count <= PTW_NEAR_UNITS / 4)
		first = take(bins_of(0), count);
	if (first == UINT32_MAX && count > SPAN)
		first = take(bins_of(PTW_NEAR_UNITS), count);
	if (first != UINT32_MAX) {
		ptw_units[first].kind = PTW_UNIT_RUN;
		ptw_units[first].run = count;
	}
	ptw_unlock(&ptw_shared->units_lock);
	if (first == UINT32_MAX)
		return first;
	if (ptw_private)
		ptw_view_lose(ptw_unit_address(first), count * PTW_UNIT);
	if (zeroed)
		ptw_units_clean(first, count);
	unlimited(first, count);
	return first;
}

void ptw_units_give(uint32_t first, uint32_t count)
{
	if (ptw_private)
		ptw_view_lose(ptw_unit_address(first), count * PTW_UNIT);
	bool punched = count >= PUNCH &&
		       PTW_SYS(SYS_madvise, alias_of(first), count * PTW_UNIT, MADV_REMOVE, 0, 0, 0) == 0;
	if (ptw_private)
		ptw_view_changed(ptw_unit_address(first), count * PTW_UNIT);
	for (uint32_t i = first; i < first + count && i < PTW_NEAR_UNITS; i++)
		ptw_units[i].dirty = !punched;
	ptw_lock(&ptw_shared->units_lock);
	struct bins *bins = bins_of(first);
	bins->used -= count;
	ptw_units[first].kind = PTW_UNIT_NEVER;
	if (first + count < end_of(bins) && ptw_units[first + count].kind == PTW_UNIT_FREE) {
		uint32_t more = ptw_units[first + count].run;
		withdraw(bins, first + count);
		count += more;
	}
	if (first > base_of(bins) && ptw_units[first - 1].kind == PTW_UNIT_FREE) {
		uint32_t before = ptw_units[first - 1].run;
		first -= before;
		withdraw(bins, first);
		count += before;
	}
	insert(bins, first, count);
	ptw_unlock(&ptw_shared->units_lock);
}

bool ptw_units_extend(uint32_t first, uint32_t count, uint32_t wanted)
{
	uint32_t more = wanted - count, next = first + count;
	bool done = false;
	ptw_lock(&ptw_shared->units_lock);
	struct bins *bins = bins_of(first);
	if (!may_use(more)) {
		ptw_unlock(&ptw_shared->units_lock);
		return false;
	}
	if (next == end_of(bins) && more <= left(bins)) {
		bins->top += more;
		done = true;
	} else if (next < end_of(bins) && ptw_units[next].kind == PTW_UNIT_FREE && ptw_units[next].run >= more) {
		uint32_t run = ptw_units[next].run;
		withdraw(bins, next);
		if (run > more)
			insert(bins, next + more, run - more);
		done = true;
	}
	if (done) {
		ptw_units[first].run = wanted;
		bins->used += more;
	}
	ptw_unlock(&ptw_shared->units_lock);
	if (done)
		unlimited(next, more);
	if (done && ptw_private)
		ptw_view_lose(ptw_unit_address(next), more * PTW_UNIT);
	return done;
}

bool ptw_units_known(uint32_t unit)
{
	const struct bins *bins = bins_of(unit);
	return unit - base_of(bins) < __atomic_load_n(&bins->top, __ATOMIC_ACQUIRE);
}

void ptw_units_cut(uint32_t first, uint32_t count)
{
	uint32_t head = first;
	while (head > 0 && ptw_units[head].kind == PTW_UNIT_NEVER)
		head--;
	if (!ptw_unit_begins_run(&ptw_units[head]))
		return;
	uint32_t run = ptw_units[head].run, before = first - head;
	if (before + count > run)
		return;
	uint32_t after = run - before - count;
	if (after) {
		ptw_units[first + count].run = after;
		ptw_units[first + count].kind = PTW_UNIT_RUN;
	}
	if (before)
		ptw_units[head].run = before;
	ptw_units_give(first, count);
}
