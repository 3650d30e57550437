/* SPDX-License-Identifier: MIT */
/* Early mappings; early.h says what is guaranteed. */
#define _GNU_SOURCE
#include "early.h"

#include "layout.h"
#include "shared_lock.h"

static struct ptw_early early[PTW_EARLY];
static uint32_t count, lock;
static bool lost, over;

static void take_out(uint32_t i) { early[i] = early[--count]; }

/* With what it overlaps or touches it becomes one. */
static void put(uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < count;) {
		struct ptw_early one = early[i];

		if (start > one.end || one.start > end) {
			i++;
			continue;
		}
		start = start < one.start ? start : one.start;
		end = end > one.end ? end : one.end;
		take_out(i);
		i = 0;
	}
	lost |= count == PTW_EARLY;
	if (count < PTW_EARLY)
		early[count++] = (struct ptw_early){start, end};
}

void ptw_early_add(uint64_t start, uint64_t size)
{
	if (over)
		return;
	ptw_lock(&lock);
	put(start, ptw_page_up(start + size));
	ptw_unlock(&lock);
}

void ptw_early_cut(uint64_t start, uint64_t size)
{
	uint64_t end = ptw_page_up(start + size);

	if (over)
		return;
	ptw_lock(&lock);
	for (uint32_t i = 0; i < count;) {
		struct ptw_early one = early[i];

		if (start >= one.end || one.start >= end) {
			i++;
			continue;
		}
		take_out(i);
		if (one.start < start)
			put(one.start, start);
		if (one.end > end)
			put(end, one.end);
		i = 0;
	}
	ptw_unlock(&lock);
}

void ptw_early_end(void) { over = true; }

uint32_t ptw_early_count(void) { return count; }

struct ptw_early ptw_early_at(uint32_t i) { return early[i]; }

bool ptw_early_lost(void) { return lost; }
