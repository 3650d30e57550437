/* SPDX-License-Identifier: MIT */
/* Page states; pages.h says what is guaranteed. */
#define _GNU_SOURCE
#include "pages.h"

#include "access.h"
#include "fault.h"
#include "files.h"
#include "options.h"
#include "region.h"
#include "segments.h"
#include "units.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

bool ptw_tracking;

/* The window: where the last one ended, and its size. */
static uint32_t window_end = PTW_PAGE_NONE, window_size;

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

static const struct ptw_segment *segment_of(uint32_t page)
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
	const struct ptw_segment *segment = segment_of(page);
	return segment ? segment->start + (page - segment->page) * PTW_PAGE : 0;
}

/* --- protection --- */

static void protect(uint64_t address, uint64_t size, int protection)
{
	long result = PTW_SYS(SYS_mprotect, address, size, protection, 0, 0, 0);
	if (result != 0)
		ptw_fault_fatal("mprotect failed: too many mappings (vm.max_map_count) or no memory", result);
}

static int protection_of(uint32_t page, enum ptw_page_state state)
{
	int wanted = state == PTW_CLOSED ? PROT_NONE : state == PTW_READ ? PROT_READ : PROT_READ | PROT_WRITE;
	return page >= PTW_MEMFD_PAGES ? wanted & ptw_files_protection(page) : wanted;
}

void ptw_pages_set(uint32_t page, uint32_t count, enum ptw_page_state state)
{
	protect(ptw_page_address(page), count * PTW_PAGE, protection_of(page, state));
	memset(ptw_page_states + page, state, count);
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

/* Pages of one mapping: numbers that follow each other lie beside each other. */
static bool same_place(uint32_t page, uint32_t next)
{
	if (next < PTW_REGION_PAGES || page >= PTW_MEMFD_PAGES)
		return true;
	return page >= PTW_REGION_PAGES && next < PTW_MEMFD_PAGES && segment_of(page) == segment_of(next);
}

void ptw_pages_close(uint32_t *pages, uint32_t count)
{
	sort(pages, count);
	for (uint32_t i = 0; i < count;) {
		uint32_t first = pages[i], end = first + 1;
		for (i++; i < count && pages[i] <= end; i++) {
			if (pages[i] == end && !same_place(first, end))
				break;
			end = pages[i] + 1;
		}
		ptw_pages_set(first, end - first, PTW_CLOSED);
	}
}

/* --- limits --- */

enum limit { LIMIT_NONE = 0, LIMIT_READ_ONLY, LIMIT_CLOSED };

#define limits ((uint8_t *)PTW_META_LIMIT)

/* Others that hold the page keep it until they close it. */
void ptw_pages_limit(uint64_t start, uint64_t size, int protection)
{
	uint32_t page = ptw_page_of(start), count = (uint32_t)((size + PTW_PAGE - 1) / PTW_PAGE);
	enum limit limit = protection & PROT_WRITE ? LIMIT_NONE : protection & PROT_READ ? LIMIT_READ_ONLY : LIMIT_CLOSED;
	if (page == PTW_PAGE_NONE || !ptw_tracking)
		return;
	memset(limits + page, limit, count);
	if (limit != LIMIT_NONE)
		ptw_pages_set(page, count, PTW_CLOSED);
}

static bool allowed(uint32_t page, bool write)
{
	return limits[page] == LIMIT_NONE || (limits[page] == LIMIT_READ_ONLY && !write);
}

/* --- opening --- */

/* Whether a window may go on from the page before to `page`: it ends with the run, span, segment or file it is in. */
static bool continues(uint32_t before, uint32_t page)
{
	if (ptw_page_states[page] != PTW_CLOSED || limits[page] != LIMIT_NONE)
		return false;
	if (page >= PTW_MEMFD_PAGES)
		return ptw_files_same(before, page);
	if (page >= PTW_REGION_PAGES)
		return segment_of(page) != NULL && segment_of(page) == segment_of(before);
	uint64_t address = PTW_REGION + page * PTW_PAGE;
	if (address < PTW_HEAP)
		return false;
	return (address & (PTW_UNIT - 1)) != 0 || ptw_units[ptw_unit_of(address)].kind == PTW_UNIT_NEVER;
}

static uint32_t window_from(uint32_t page)
{
	uint32_t count = 1;
	window_size = page == window_end ? window_size * 2 : 1;
	if (window_size > PTW_WINDOW_MAX)
		window_size = PTW_WINDOW_MAX;
	while (count < window_size && continues(page + count - 1, page + count))
		count++;
	window_end = page + count;
	return count;
}

static void open_pages(uint32_t page, uint32_t count, bool write, uint64_t address, const struct ptw_frame *frame)
{
	if (ptw_options()->access == PTW_ACCESS_HELD)
		ptw_held_opened(page, count, write);
	else
		ptw_exact_opened(page, count);
	ptw_pages_set(page, count, write ? PTW_WRITE : PTW_READ);
	ptw_access_log(address, count, write, frame);
}

/* Not memory the program has: beyond the heap's end, a stack's margin, an area without a thread. */
static bool wild(uint64_t address)
{
	if (ptw_in_heap(address))
		return !ptw_units_known(ptw_unit_of(address));
	if (!ptw_in_region(address))
		return false;
	return (address - PTW_REGION) % PTW_STACK_AREA < PTW_STACK_MARGIN;
}

/* Thread-local storage of another thread: open for good, and nothing is said. */
static bool open_storage(uint64_t address, uint32_t page)
{
	if (!ptw_in_region(address) || ptw_in_heap(address))
		return false;
	const struct ptw_slot *slot = &ptw_shared->slot[(address - PTW_REGION) / PTW_STACK_AREA];
	if (slot->open_from == 0 || address < slot->open_from || address >= slot->open_to)
		return false;
	ptw_pages_set(page, 1, PTW_ALWAYS);
	return true;
}

bool ptw_pages_fault(uint64_t address, bool write, const struct ptw_frame *frame)
{
	uint32_t page = ptw_page_of(address);
	if (!ptw_tracking || page == PTW_PAGE_NONE || wild(address))
		return false;
	uint8_t state = ptw_page_states[page];
	if (state == PTW_ALWAYS || state == PTW_WRITE)
		return false;
	write = write || state == PTW_READ;
	if (!allowed(page, write))
		return false;
	if (page >= PTW_MEMFD_PAGES && !ptw_files_admit(page, write))
		return false;
	if (open_storage(address, page))
		return true;
	open_pages(page, state == PTW_CLOSED ? window_from(page) : 1, write, address, frame);
	return true;
}

void ptw_touch_slow(uint64_t start, uint64_t size, bool write, const struct ptw_frame *frame)
{
	uint64_t end = start + size, address = start;
	if (end < start)
		return;
	while (address < end) {
		uint32_t page = ptw_page_of(address), count = 1;
		uint64_t next = (address & ~(PTW_PAGE - 1)) + PTW_PAGE;
		if (page == PTW_PAGE_NONE)
			return; /* what follows is not tracked either, or the call fails as it should */
		uint8_t state = ptw_page_states[page];
		bool needed = state == PTW_CLOSED || (state == PTW_READ && write);
		if (needed && !wild(address) && allowed(page, write) && (page < PTW_MEMFD_PAGES || ptw_files_admit(page, write)) &&
		    !open_storage(address, page)) {
			for (; next < end && ptw_page_states[page + count] == state && count < PTW_WINDOW_MAX &&
			       ptw_page_of(next) == page + count && !wild(next) && allowed(page + count, write);
			     count++)
				next += PTW_PAGE;
			open_pages(page, count, write, address, frame);
		}
		address = next;
	}
}

/* --- a process's beginning and end --- */

/* The caller runs on the stack; other memory is closed. */
static void close_all(const struct ptw_slot *slot)
{
	uint64_t stack_end = slot->stack + slot->stack_size;
	const struct ptw_segments *all = ptw_segment_table;
	uint32_t page = ptw_page_of(slot->stack);
	if (page != PTW_PAGE_NONE)
		memset(ptw_page_states + page, PTW_ALWAYS, slot->stack_size / PTW_PAGE);
	if (ptw_in_region(slot->stack)) {
		protect(PTW_REGION, slot->stack - PTW_REGION, PROT_NONE);
		protect(stack_end, PTW_REGION + PTW_REGION_SIZE - stack_end, PROT_NONE);
	} else {
		protect(PTW_REGION, PTW_REGION_SIZE, PROT_NONE);
	}
	for (uint32_t i = 0; i < all->count; i++) {
		const struct ptw_segment *segment = &all->segment[i];
		if (ptw_segments_here(i) && slot->stack - segment->start >= segment->end - segment->start)
			protect(segment->start, segment->end - segment->start, PROT_NONE);
	}
	ptw_files_close();
}

void ptw_pages_start(void)
{
	struct ptw_slot *slot = ptw_slot();
	if (ptw_options()->access == PTW_ACCESS_OFF)
		return;
	ptw_fault_init();
	ptw_fault_stack();
	ptw_tracking = true;
	/* main's own stack is entered after this, the one the kernel gave is not tracked */
	close_all(slot);
}

void ptw_pages_begin(struct ptw_slot *slot)
{
	if (!ptw_tracking)
		return;
	PTW_SYS(SYS_mmap, PTW_OWN, PTW_OWN_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	window_end = PTW_PAGE_NONE;
	ptw_exact_begin();
	slot->mail = slot->overflow = 0;
	ptw_fault_stack();
	close_all(slot);
}

void ptw_pages_boundary(void)
{
	if (__builtin_expect(ptw_segments_loaded, 0))
		ptw_segments_load();
	if (!ptw_tracking)
		return;
	int before = errno;
	if (ptw_options()->access == PTW_ACCESS_HELD) {
		ptw_held_boundary();
	} else {
		ptw_exact_boundary();
		window_end = PTW_PAGE_NONE;
	}
	errno = before;
}

void ptw_pages_end(void) { ptw_pages_boundary(); }

void ptw_pages_lend(struct ptw_slot *slot)
{
	if (ptw_tracking && ptw_page_of(slot->stack) != PTW_PAGE_NONE)
		protect(slot->stack, slot->stack_size, PROT_READ | PROT_WRITE);
}

void ptw_pages_lent(struct ptw_slot *slot)
{
	if (ptw_tracking && ptw_page_of(slot->stack) != PTW_PAGE_NONE)
		ptw_pages_set(ptw_page_of(slot->stack), (uint32_t)(slot->stack_size / PTW_PAGE), PTW_CLOSED);
}
