/* SPDX-License-Identifier: MIT */
/* Page numbers, protections and states of many pages at once; pages.h says what is guaranteed. */
#define _GNU_SOURCE
#include "pages_inner.h"

#include "crowd.h"
#include "fault.h"
#include "files.h"
#include "limits.h"
#include "region.h"
#include "segments.h"
#include "view.h"

#include <string.h>
#include <sys/mman.h>

/* --- numbers --- */

uint32_t ptw_page_of(uint64_t address)
{
	if (ptw_in_region(address))
		return (uint32_t)((address - PTW_REGION) / PTW_PAGE);
	if (address - PTW_FILES < PTW_FILES_SIZE)
		return (uint32_t)(PTW_MEMFD_PAGES + (address - PTW_FILES) / PTW_PAGE);
	const struct ptw_segments *all = ptw_segment_table;
	uint32_t count = __atomic_load_n(&all->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++) {
		const struct ptw_segment *segment = &all->segment[i];
		if (address - segment->start < segment->end - segment->start)
			return (uint32_t)(segment->page + (address - segment->start) / PTW_PAGE);
	}
	return PTW_PAGE_NONE;
}

const struct ptw_segment *ptw_page_segment(uint32_t page)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < all->count; i++)
		if (page - all->segment[i].page < (all->segment[i].end - all->segment[i].start) / PTW_PAGE)
			return &all->segment[i];
	return NULL;
}

uint64_t ptw_page_address(uint32_t page)
{
	if (page < PTW_REGION_PAGES)
		return PTW_REGION + page * PTW_PAGE;
	if (page >= PTW_MEMFD_PAGES)
		return PTW_FILES + (page - PTW_MEMFD_PAGES) * PTW_PAGE;
	const struct ptw_segment *segment = ptw_page_segment(page);
	return segment ? segment->start + (page - segment->page) * PTW_PAGE : 0;
}

/* --- protection --- */

void ptw_protect(uint64_t address, uint64_t size, int protection)
{
	long result = PTW_SYS(SYS_mprotect, address, size, protection, 0, 0, 0);
	if (result != 0)
		ptw_fault_fatal("mprotect failed: too many mappings (vm.max_map_count) or no memory", result);
	ptw_crowd_add();
}

int ptw_page_allowance(uint32_t page)
{
	return ptw_limit_or(page, page >= PTW_MEMFD_PAGES ? ptw_files_protection(page) : PROT_READ | PROT_WRITE);
}

static int protection_of(uint32_t page, enum ptw_page_state state)
{
	if (state == PTW_CLOSED)
		return PROT_NONE;
	if (page < PTW_MEMFD_PAGES && !ptw_limits[page]) /* most */
		return state == PTW_READ ? PROT_READ : PROT_READ | PROT_WRITE;
	return ptw_page_allowance(page) & (state == PTW_READ ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE | PROT_EXEC);
}

static void set_private(uint32_t page, uint32_t count, enum ptw_page_state state)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	if (state == PTW_WRITE)
		ptw_view_write(page, count);
	else if (state == PTW_ALWAYS)
		ptw_view_share(page, count);
	else
		ptw_view_leave(page, count);
	if (ptw_limits[page] || state == PTW_CLOSED || state == PTW_READ)
		ptw_protect(ptw_page_address(page), count * PTW_PAGE, protection_of(page, state));
	memset(ptw_page_states + page, state, count);
	ptw_restore_signals(&mask);
}

void ptw_pages_set(uint32_t page, uint32_t count, enum ptw_page_state state)
{
	if (ptw_private && page < PTW_MEMFD_PAGES) {
		set_private(page, count, state);
		return;
	}
	ptw_protect(ptw_page_address(page), count * PTW_PAGE, protection_of(page, state));
	memset(ptw_page_states + page, state, count);
}

void ptw_pages_close_new(uint32_t page, uint32_t count)
{
	if (ptw_private)
		ptw_view_map(page, count);
	else
		ptw_pages_set(page, count, PTW_CLOSED);
}

void ptw_pages_forget(uint32_t page, uint32_t count)
{
	uint64_t first = (uint64_t)(ptw_page_states + page), end = first + count;
	uint64_t from = (first + PTW_PAGE - 1) & ~(PTW_PAGE - 1), to = end & ~(PTW_PAGE - 1);
	if (to > from && PTW_SYS(SYS_madvise, from, to - from, MADV_DONTNEED, 0, 0, 0) == 0) {
		memset((void *)first, 0, from - first);
		memset((void *)to, 0, end - to);
	} else {
		memset((void *)first, 0, count);
	}
}

static void sort(uint32_t *values, uint32_t count)
{
	for (uint32_t gap = count / 2; gap > 0; gap /= 2) {
		for (uint32_t i = gap; i < count; i++) {
			uint32_t value = values[i], j = i;
			for (; j >= gap && values[j - gap] > value; j -= gap)
				values[j] = values[j - gap];
			values[j] = value;
		}
	}
}

/* Within one mapping numbers that follow each other lie beside each other. */
bool ptw_page_beside(uint32_t page, uint32_t next)
{
	if (next < PTW_REGION_PAGES || page >= PTW_MEMFD_PAGES)
		return true;
	return page >= PTW_REGION_PAGES && next < PTW_MEMFD_PAGES && ptw_page_segment(page) == ptw_page_segment(next);
}

/* It may have been taken away since it was opened, and nothing may be there any more. */
static bool is_closed(uint32_t page) { return ptw_page_states[page] == PTW_CLOSED; }

void ptw_pages_close(uint32_t *pages, uint32_t count)
{
	sort(pages, count);
	for (uint32_t i = 0; i < count;) {
		uint32_t first = pages[i], end = first + 1;
		for (i++; i < count && pages[i] <= end; i++) {
			if (pages[i] == end && (!ptw_page_beside(first, end) || is_closed(end)))
				break;
			end = pages[i] + 1;
		}
		if (!is_closed(first))
			ptw_pages_set(first, end - first, PTW_CLOSED);
	}
}
