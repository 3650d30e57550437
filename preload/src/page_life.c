/* SPDX-License-Identifier: MIT */
/* Pages at a process's beginning and end, and when there are too many mappings; pages.h says what is guaranteed. */
#define _GNU_SOURCE
#include "pages_inner.h"

#include "access.h"
#include "atomic_places.h"
#include "crowd.h"
#include "fault.h"
#include "files.h"
#include "instructions.h"
#include "notice.h"
#include "options.h"
#include "region.h"
#include "revoke.h"
#include "segments.h"
#include "view.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* Close pages [page, end), but those from `from` up to `to`: there the caller runs. */
static void close_around(uint64_t page, uint64_t end, uint64_t from, uint64_t to)
{
	uint64_t cut[] = {page, from < page || from > end ? end : from, to < page || to > end ? end : to, end};
	for (unsigned i = 0; i < 4; i += 2) {
		if (cut[i] >= cut[i + 1])
			continue;
		if (ptw_private)
			ptw_view_map((uint32_t)cut[i], (uint32_t)(cut[i + 1] - cut[i]));
		else
			ptw_protect(ptw_page_address((uint32_t)cut[i]), (cut[i + 1] - cut[i]) * PTW_PAGE, PROT_NONE);
	}
}

/* The caller runs on the stack; other memory is closed. */
static void close_all(const struct ptw_slot *slot)
{
	const struct ptw_segments *all = ptw_segment_table;
	uint32_t page = ptw_page_of(slot->stack), end = page;
	if (page != PTW_PAGE_NONE) {
		end += (uint32_t)(slot->stack_size / PTW_PAGE);
		memset(ptw_page_states + page, PTW_ALWAYS, end - page);
		if (ptw_private)
			ptw_view_is_shared(page, end - page);
	}
	close_around(0, PTW_REGION_PAGES, page, end);
	for (uint32_t i = 0; i < all->count; i++) {
		const struct ptw_segment *segment = &all->segment[i];
		if (ptw_segments_here(i))
			close_around(segment->page, segment->page + (segment->end - segment->start) / PTW_PAGE, page, end);
	}
	ptw_files_close();
}

/* Of `count` bytes of the table. */
static void visit_states(uint64_t from, uint64_t count, void (*visit)(uint32_t page))
{
	for (uint64_t page = from; page < from + count; page++) {
		if (page % 8 == 0 && *(const uint64_t *)(ptw_page_states + page) == 0)
			page += 7;
		else if (ptw_page_states[page] != PTW_CLOSED)
			visit((uint32_t)page);
	}
}

/* The table is large and mostly never touched. */
void ptw_pages_visit(void (*visit)(uint32_t page))
{
	uint64_t there[512], from = PTW_OWN_STATES / PTW_PAGE, end = (PTW_OWN_STATES + PTW_PAGES) / PTW_PAGE;
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0, 0, 0);
	while (from < end) {
		uint64_t count = end - from < 512 ? end - from : 512;
		bool known = fd >= 0 && PTW_SYS(SYS_pread64, fd, there, count * 8, from * 8, 0, 0) == (long)(count * 8);
		for (uint64_t i = 0; i < count; i++)
			if (!known || there[i] >> 62) /* present, or swapped out */
				visit_states((from + i) * PTW_PAGE - PTW_OWN_STATES, PTW_PAGE, visit);
		from += count;
	}
	if (fd >= 0)
		ptw_close((int)fd);
}

static void close_state(uint32_t page)
{
	bool held = ptw_page_states[page] == PTW_READ || ptw_page_states[page] == PTW_WRITE;
	if (!held && ptw_page_own_stack(page))
		return;
	ptw_page_states[page] = PTW_CLOSED;
	if (held && ptw_options()->access == PTW_ACCESS_HELD)
		ptw_held_left(page, 1);
}

void ptw_pages_close_everything(void)
{
	ptw_notice(PTW_NOTICE_LIMIT, NULL,
		   "more mappings are needed than vm.max_map_count allows: all pages are closed, and opened again when used");
	if (ptw_private)
		ptw_view_give_up();
	close_all(ptw_slot());
	ptw_pages_visit(close_state);
	ptw_access_log_end(0, 0);
	ptw_crowd_begin();
}

static uint32_t pages_of_stack(const struct ptw_slot *slot) { return (uint32_t)(slot->stack_size / PTW_PAGE); }

void ptw_pages_start(void)
{
	struct ptw_slot *slot = ptw_slot();
	ptw_fault_init();
	ptw_fault_stack();
	if (ptw_options()->access == PTW_ACCESS_OFF)
		return;
	ptw_crowd_init();
	ptw_tracking = true;
	ptw_private = ptw_options()->private_view;
	ptw_pages_fresh();
	ptw_pages_alone(true);
	if (ptw_private) {
		ptw_view_begin();
		ptw_view_loosen(ptw_page_of(slot->stack), pages_of_stack(slot));
		ptw_atomic_places_init();
	}
	/* main's own stack is entered after this, the one the kernel gave is not tracked */
	close_all(slot);
	ptw_instructions_init();
}

void ptw_pages_begin(struct ptw_slot *slot)
{
	ptw_fault_stack();
	if (!ptw_tracking)
		return;
	ptw_pages_fresh();
	ptw_revoke_begin();
	ptw_crowd_begin();
	ptw_exact_begin();
	ptw_held_begin();
	slot->mail = slot->overflow = 0;
	if (ptw_private)
		ptw_view_begin();
	close_all(slot);
	ptw_instructions_begin();
}

void ptw_pages_end(void)
{
	ptw_pages_boundary();
	if (ptw_private)
		ptw_view_end();
}

void ptw_pages_lend(struct ptw_slot *slot)
{
	uint32_t page = ptw_page_of(slot->stack);
	ptw_pages_alone(false);
	if (!ptw_tracking || page == PTW_PAGE_NONE)
		return;
	if (ptw_private) {
		ptw_view_loosen(page, pages_of_stack(slot));
		ptw_view_share(page, pages_of_stack(slot));
	} else {
		ptw_protect(slot->stack, slot->stack_size, PROT_READ | PROT_WRITE);
	}
}

/* Thread-local storage at the end of a slot's area is open to everybody. Whoever creates a thread looks at its control
 * block, mostly more than once: it stays open to it, which saves a fault. Elsewhere the memory is the program's. */
static uint32_t pages_of_storage(const struct ptw_slot *slot)
{
	bool in_area = ptw_in_region(slot->stack) && !ptw_in_heap(slot->stack);
	return in_area && slot->open_from ? (uint32_t)((slot->open_to - slot->open_from) / PTW_PAGE) : 0;
}

void ptw_pages_lent(struct ptw_slot *slot)
{
	uint32_t page = ptw_page_of(slot->stack), open = pages_of_storage(slot), count = pages_of_stack(slot) - open;
	if (!ptw_tracking || page == PTW_PAGE_NONE)
		return;
	if (ptw_private) {
		ptw_view_unshare(page, count);
		memset(ptw_page_states + page, PTW_CLOSED, count);
	} else {
		ptw_pages_set(page, count, PTW_CLOSED);
	}
	memset(ptw_page_states + page + count, PTW_ALWAYS, open);
}
