/* SPDX-License-Identifier: MIT */
/*
 * Commits; commit.h says what is guaranteed.
 *
 * A page's version is counted up after its bytes are stored. Who takes bytes over reads the version before them: what
 * it took by half it takes again. Where shared memory changes without commits (PTW_LOOSE), versions say nothing: there
 * the bytes are compared, and only bytes that were changed are stored, since others write beside them without the lock.
 */
#define _GNU_SOURCE
#include "commit.h"

#include "access.h"
#include "diff.h"
#include "pages.h"
#include "segments.h"
#include "shared_lock.h"

#include <string.h>

static uint32_t *lock_of(uint32_t page)
{
	return (uint32_t *)(PTW_META_PAGE_LOCKS + page % PTW_PAGE_LOCKS * 64ull);
}

void ptw_page_lock(uint32_t page) { ptw_lock(lock_of(page)); }

void ptw_page_unlock(uint32_t page) { ptw_unlock(lock_of(page)); }

void ptw_page_locks_forget(void) { memset((void *)PTW_META_PAGE_LOCKS, 0, PTW_PAGE_LOCKS * 64ull); }

static bool loose(uint32_t page) { return __atomic_load_n(&ptw_page_traits[page], __ATOMIC_ACQUIRE) != 0; }

/* A byte that this thread and another changed. The loader's words are written by every thread, the same by all. */
static int find_race(uint32_t page, const char *shared, const char *twin, const struct ptw_diff *diff)
{
	const struct ptw_segments *all = ptw_segment_table;
	struct ptw_diff own = *diff;
	for (uint32_t i = 0; page >= PTW_REGION_PAGES && i < all->count; i++) {
		uint64_t start = ptw_page_address(page), from = all->segment[i].bound_from, to = all->segment[i].bound_to;
		from = from > start ? from : start;
		to = to < start + PTW_PAGE ? to : start + PTW_PAGE;
		for (uint64_t at = from; at < to; at++)
			own.bits[(at - start) / 64] &= ~(1ull << (at & 63));
	}
	return ptw_diff_overlap(shared, twin, &own);
}

bool ptw_commit(struct ptw_copy *copy, int *ret_race)
{
	struct ptw_diff diff;
	uint32_t page = copy->page;
	const char *mine = (const char *)ptw_page_address(page);
	char *twin = ptw_twin(copy), *shared = ptw_page_alias(page);
	uint32_t count = ptw_diff(mine, twin, &diff);
	if (count == 0)
		return false;
	ptw_page_lock(page);
	bool others_write = loose(page);
	uint32_t version = __atomic_load_n(&ptw_page_versions[page], __ATOMIC_RELAXED);
	if (ret_race && version != copy->version && !(ptw_page_traits[page] & PTW_PASSED))
		*ret_race = find_race(page, shared, twin, &diff);
	__atomic_store_n(&ptw_page_changes[page][(version + 1) % PTW_CHANGES], diff.lines, __ATOMIC_RELEASE);
	ptw_diff_apply(shared, mine, &diff, !others_write);
	/* others count it up without the lock where memory was changed through its alias */
	version = __atomic_fetch_add(&ptw_page_versions[page], 1, __ATOMIC_RELEASE);
	ptw_page_unlock(page);
	ptw_diff_take(twin, twin, mine, diff.lines);
	if (version == copy->version)
		copy->version = version + 1;
	ptw_access_log_commit(ptw_page_address(page), version + 1, count, &diff);
	return true;
}

/* Lines that commits (from, to] wrote to; all, where that is not known any more. */
static uint64_t changed_since(uint32_t page, uint32_t from, uint32_t to)
{
	uint64_t lines = 0;
	if (to - from >= PTW_CHANGES)
		return PTW_ALL_LINES;
	for (uint32_t version = from + 1; version != to + 1; version++)
		lines |= __atomic_load_n(&ptw_page_changes[page][version % PTW_CHANGES], __ATOMIC_RELAXED);
	/* the commit that is under way may have written over the oldest that is wanted */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	uint32_t now = __atomic_load_n(&ptw_page_versions[page], __ATOMIC_RELAXED);
	return now - from >= PTW_CHANGES - 1 ? PTW_ALL_LINES : lines;
}

void ptw_refresh(struct ptw_copy *copy)
{
	uint32_t page = copy->page, version = __atomic_load_n(&ptw_page_versions[page], __ATOMIC_ACQUIRE);
	uint64_t lines = PTW_ALL_LINES;
	const char *shared = ptw_page_alias(page);
	char *twin = ptw_twin(copy);
	if (!loose(page)) {
		if (version == copy->version)
			return;
		lines = changed_since(page, copy->version, version);
	}
	copy->version = version;
	lines = ptw_diff_lines(shared, twin, lines);
	ptw_diff_take(twin, (char *)ptw_page_address(page), shared, lines);
}
