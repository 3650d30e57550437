/* SPDX-License-Identifier: MIT */
/* Units of the heap; units.h says what is guaranteed. */
#define _GNU_SOURCE
#include "units.h"

#include "shared_lock.h"
#include "slots.h"

#include <string.h>
#include <sys/mman.h>

enum {
	BINS = 24,
	PROBES = 32,
	PUNCH = 4, /* runs of that many units give their memory back */
};

struct bins {
	uint32_t top; /* units ever given out */
	uint32_t head[BINS];
};

#define bins ((struct bins *)PTW_META_BINS)

static uint32_t bin_of(uint32_t count) { return 31u - (uint32_t)__builtin_clz(count); }

static void insert(uint32_t first, uint32_t count)
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

static void withdraw(uint32_t first)
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

static uint32_t search(uint32_t count)
{
	for (uint32_t bin = bin_of(count); bin < BINS; bin++) {
		uint32_t at = bins->head[bin];
		for (int probe = 0; at && probe < PROBES; probe++, at = ptw_units[at - 1].next)
			if (ptw_units[at - 1].run >= count)
				return at - 1;
	}
	return UINT32_MAX;
}

static uint32_t take(uint32_t count)
{
	uint32_t first = search(count);
	if (first != UINT32_MAX) {
		uint32_t run = ptw_units[first].run;
		withdraw(first);
		if (run > count)
			insert(first + count, run - count);
	} else if (count <= PTW_UNITS - bins->top) {
		first = bins->top;
		bins->top += count;
	}
	return first;
}

static uint64_t alias_of(uint32_t unit) { return ptw_unit_address(unit) - PTW_REGION + PTW_ALIAS; }

static void clean(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++) {
		if (!ptw_units[i].dirty)
			continue;
		uint32_t end = i + 1;
		while (end < first + count && ptw_units[end].dirty)
			end++;
		if (end - i < PUNCH ||
		    PTW_SYS(SYS_madvise, alias_of(i), (end - i) * PTW_UNIT, MADV_REMOVE, 0, 0, 0) != 0)
			memset((void *)alias_of(i), 0, (end - i) * PTW_UNIT);
		i = end;
	}
}

uint32_t ptw_units_take(uint32_t count, bool zeroed)
{
	if (count == 0 || count > PTW_UNITS)
		return UINT32_MAX;
	ptw_lock(&ptw_shared->units_lock);
	uint32_t first = take(count);
	if (first != UINT32_MAX) {
		ptw_units[first].kind = PTW_UNIT_RUN;
		ptw_units[first].run = count;
	}
	ptw_unlock(&ptw_shared->units_lock);
	if (first == UINT32_MAX)
		return first;
	if (zeroed)
		clean(first, count);
	uint64_t page = (ptw_unit_address(first) - PTW_REGION) / PTW_PAGE;
	memset((uint8_t *)PTW_META_LIMIT + page, 0, count * (PTW_UNIT / PTW_PAGE)); /* see pages.c: no limit */
	return first;
}

void ptw_units_give(uint32_t first, uint32_t count)
{
	bool punched = count >= PUNCH &&
		       PTW_SYS(SYS_madvise, alias_of(first), count * PTW_UNIT, MADV_REMOVE, 0, 0, 0) == 0;
	for (uint32_t i = first; i < first + count; i++)
		ptw_units[i].dirty = !punched;
	ptw_lock(&ptw_shared->units_lock);
	ptw_units[first].kind = PTW_UNIT_NEVER;
	if (first + count < bins->top && ptw_units[first + count].kind == PTW_UNIT_FREE) {
		uint32_t more = ptw_units[first + count].run;
		withdraw(first + count);
		count += more;
	}
	if (first > 0 && ptw_units[first - 1].kind == PTW_UNIT_FREE) {
		uint32_t before = ptw_units[first - 1].run;
		first -= before;
		withdraw(first);
		count += before;
	}
	insert(first, count);
	ptw_unlock(&ptw_shared->units_lock);
}

bool ptw_units_extend(uint32_t first, uint32_t count, uint32_t wanted)
{
	uint32_t more = wanted - count, next = first + count;
	bool done = false;
	ptw_lock(&ptw_shared->units_lock);
	if (next == bins->top && more <= PTW_UNITS - bins->top) {
		bins->top += more;
		done = true;
	} else if (next < bins->top && ptw_units[next].kind == PTW_UNIT_FREE && ptw_units[next].run >= more) {
		uint32_t run = ptw_units[next].run;
		withdraw(next);
		if (run > more)
			insert(next + more, run - more);
		done = true;
	}
	if (done)
		ptw_units[first].run = wanted;
	ptw_unlock(&ptw_shared->units_lock);
	return done;
}

bool ptw_units_known(uint32_t unit) { return unit < __atomic_load_n(&bins->top, __ATOMIC_ACQUIRE); }

void ptw_units_cut(uint32_t first, uint32_t count)
{
	uint32_t head = first;
	while (head > 0 && ptw_units[head].kind == PTW_UNIT_NEVER)
		head--;
	if (ptw_units[head].kind != PTW_UNIT_RUN)
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
