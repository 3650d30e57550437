/* SPDX-License-Identifier: MIT */
/* Page states; pages.h says what is guaranteed. */
#define _GNU_SOURCE
#include "pages_inner.h"

#include "access.h"
#include "aside.h"
#include "atomic_insn.h"
#include "budget.h"
#include "crowd.h"
#include "files.h"
#include "instructions.h"
#include "limits.h"
#include "loader.h"
#include "notice.h"
#include "options.h"
#include "passed.h"
#include "region.h"
#include "revoke.h"
#include "segments.h"
#include "units.h"
#include "view.h"
#include "windows.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

bool ptw_tracking;

/* Of pages that were closed, and of pages that were read and are written now. */
static PTW_CHANGING struct ptw_windows opening, upgrading;

/* For faults, where pages stay open (held): its level is the logarithm of a window's least size. So what is accessed all
 * over the place does not fault page by page. */
static PTW_CHANGING struct ptw_budget faults = {.least = 1, .most = 6};

/* While there is one thread, nobody asks it for pages: it gets coarser sooner. */
enum { ALONE_SAMPLE = PTW_BUDGET_SAMPLE / 8 };

/* --- limits --- */

static bool allowed(uint32_t page, bool write)
{
	return !ptw_limits[page] || (ptw_limit_or(page, 0) & (write ? PROT_WRITE : PROT_READ)) != 0;
}

void ptw_pages_limit(uint64_t start, uint64_t size, int protection)
{
	uint32_t page = ptw_page_of(start), count = (uint32_t)(size / PTW_PAGE);
	if (page == PTW_PAGE_NONE || count == 0)
		return;
	if (protection == (PROT_READ | PROT_WRITE) && page < PTW_MEMFD_PAGES)
		ptw_limits_clear(page, count);
	else
		memset(ptw_limits + page, PTW_LIMITED | protection, count);
	if (ptw_tracking)
		ptw_revoke(page, count);
	else
		ptw_protect(start, size, protection & (PROT_READ | PROT_WRITE | PROT_EXEC));
}

/* A thread cannot be without its stack, and without thread-local storage on it. */
bool ptw_page_own_stack(uint32_t page)
{
	const struct ptw_slot *slot = ptw_slot();
	return !ptw_limits[page] && ptw_page_address(page) - slot->stack < slot->stack_size;
}

void ptw_pages_revoked(uint32_t page, uint32_t pages)
{
	const uint8_t *states = ptw_page_states;
	for (uint32_t i = page, end = page + pages; i < end;) {
		if (states[i] == PTW_CLOSED || (states[i] == PTW_ALWAYS && ptw_page_own_stack(i))) {
			i++;
			while (i + 8 <= end && i % 8 == 0 && *(const uint64_t *)(states + i) == 0)
				i += 8;
			continue;
		}
		uint32_t first = i++;
		while (i < end && states[i] == states[first] && ptw_page_beside(first, i) &&
		       !(states[i] == PTW_ALWAYS && ptw_page_own_stack(i)))
			i++;
		ptw_pages_set(first, i - first, PTW_CLOSED);
		if (ptw_options()->access == PTW_ACCESS_HELD)
			ptw_held_left(first, i - first);
		ptw_access_log_end(ptw_page_address(first), i - first);
	}
}

/* --- opening --- */

static void open_pages(uint32_t page, uint32_t count, bool write, uint64_t address, const struct ptw_frame *frame)
{
	if (ptw_options()->access == PTW_ACCESS_HELD) {
		ptw_held_opened(page, count, write);
		ptw_budget_spend(&faults, 1);
	} else {
		ptw_exact_opened(page, count, write);
	}
	ptw_pages_set(page, count, write ? PTW_WRITE : PTW_READ);
	ptw_access_log(address, count, write, frame);
	/* who took it away meanwhile did not see it open */
	if (__builtin_expect(ptw_revoke_behind(), 0))
		ptw_revoke_catch_up();
}

/* Not memory the program has: beyond the heap's end, below a stack. */
static bool wild(uint64_t address)
{
	if (ptw_in_heap(address))
		return !ptw_units_known(ptw_unit_of(address));
	if (!ptw_in_region(address))
		return false;
	uint64_t area = (address - PTW_REGION) / PTW_STACK_AREA;
	return address < ptw_shared->slot[area].stack || (address - PTW_REGION) % PTW_STACK_AREA < PTW_STACK_MARGIN;
}

/* Thread-local storage of another thread, and what is passed through: open for good, and nothing is said. */
static bool open_for_good(uint64_t address, uint32_t page)
{
	if (ptw_is_passed(address)) {
		ptw_pages_set(page, 1, PTW_ALWAYS);
		return true;
	}
	if (!ptw_in_region(address) || ptw_in_heap(address))
		return false;
	const struct ptw_slot *slot = &ptw_shared->slot[(address - PTW_REGION) / PTW_STACK_AREA];
	if (slot->open_from == 0 || address < slot->open_from || address >= slot->open_to)
		return false;
	ptw_pages_set(page, 1, PTW_ALWAYS);
	return true;
}

static bool stacks_execute;

static int look_at_stack(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size, (void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_STACK && info->dlpi_phdr[i].p_flags & PF_X)
			stacks_execute = true;
	return stacks_execute;
}

void ptw_pages_init_stacks(void) { dl_iterate_phdr(look_at_stack, NULL); }

/* Code on a stack: of functions that are defined within others. Such a page is executable memory from then on. */
static bool make_code(uint32_t page)
{
	const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
	uint64_t address = ptw_page_address(page);
	if (!stacks_execute || (address - PTW_REGION >= PTW_STACKS_SIZE && !ptw_page_own_stack(page)))
		return false;
	if (!ptw_limits[page])
		ptw_pages_limit(address, PTW_PAGE, all);
	return ptw_limit_or(page, 0) == all;
}

bool ptw_pages_execute(uint64_t address)
{
	uint32_t page = ptw_page_of(address);
	if (page != PTW_PAGE_NONE && make_code(page) && (!ptw_tracking || ptw_page_states[page] == PTW_ALWAYS)) {
		ptw_protect(ptw_page_address(page), PTW_PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
		return true;
	}
	if (!ptw_tracking || page == PTW_PAGE_NONE || ptw_page_states[page] == PTW_ALWAYS || wild(address) ||
	    !(ptw_page_allowance(page) & PROT_EXEC))
		return false;
	ptw_pages_set(page, 1, PTW_ALWAYS);
	return true;
}

/* An atomic on a private copy would be lost. What it orders, too, unless it is a boundary. */
static void look_at_instruction(uint64_t address, const struct ptw_frame *frame)
{
	uint64_t code = frame->pc - 1;
	if (!ptw_insn_is_atomic((const uint8_t *)code))
		return;
	ptw_view_boundary();
	ptw_view_pass(address, code);
}

bool ptw_pages_fault(uint64_t address, bool write, const struct ptw_frame *frame)
{
	uint32_t page = ptw_page_of(address);
	if (page != PTW_PAGE_NONE && ptw_limits[page] == PTW_OVERLAID)
		return ptw_files_overlay_admit(address, write);
	if (!ptw_tracking || page == PTW_PAGE_NONE || wild(address))
		return false;
	if (ptw_crowded())
		ptw_pages_close_everything();
	uint8_t state = ptw_page_states[page];
	if (state == PTW_ALWAYS || state == PTW_WRITE)
		return false;
	write = write || state == PTW_READ;
	if (!allowed(page, write))
		return false;
	if (ptw_limit_or(page, 0) & PROT_EXEC) /* code is not data: it is as the program wants it, and nothing is said */
		return ptw_pages_execute(address);
	if (page >= PTW_MEMFD_PAGES && !ptw_files_admit(page, write))
		return false;
	if (open_for_good(address, page))
		return true;
	if (ptw_private && write && page < PTW_MEMFD_PAGES)
		look_at_instruction(address, frame);
	/* a private copy that nobody writes to is dear */
	uint32_t level = ptw_private && write ? 0 : faults.level, count = 1;
	if (state == PTW_CLOSED)
		count = ptw_window_from(&opening, page, level);
	else if (level)
		count = ptw_window_from(&upgrading, page, level);
	open_pages(page, count, write, address, frame);
	return true;
}

static void touch(uint64_t start, uint64_t size, bool write, const struct ptw_frame *frame)
{
	const uint64_t all_but_faults = PTW_ALL_BUT_FAULTS;
	uint64_t end = start + size, address = start, mask;
	bool blocked = false; /* a signal's handler may open pages too, and must not find this half done */
	if (end < start)
		return;
	while (address < end) {
		uint32_t page = ptw_page_of(address), count = 1;
		uint64_t next = (address & ~(PTW_PAGE - 1)) + PTW_PAGE;
		if (page == PTW_PAGE_NONE)
			break; /* what follows is not tracked either, or the call fails as it should */
		uint8_t state = ptw_page_states[page];
		bool needed = state == PTW_CLOSED || (state == PTW_READ && write);
		if (needed && !blocked) {
			PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &all_but_faults, &mask, sizeof mask, 0, 0);
			blocked = true;
			continue;
		}
		if (needed && ptw_limits[page] == PTW_OVERLAID) {
			ptw_files_overlay_admit(address, write);
			address = next;
			continue;
		}
		if (needed && !wild(address) && allowed(page, write) && (page < PTW_MEMFD_PAGES || ptw_files_admit(page, write)) &&
		    !open_for_good(address, page)) {
			for (; next < end && ptw_page_states[page + count] == state && count < PTW_WINDOW_MAX &&
			       ptw_page_of(next) == page + count && !wild(next) &&
			       ptw_limits[page + count] == ptw_limits[page] && !ptw_is_passed(next);
			     count++)
				next += PTW_PAGE;
			open_pages(page, count, write, address, frame);
		}
		address = next;
	}
	if (blocked)
		ptw_restore_signals(&mask);
}

struct touching {
	uint64_t start, size;
	bool write;
	const struct ptw_frame *frame;
};

static long touch_aside(void *data)
{
	const struct touching *touching = data;
	touch(touching->start, touching->size, touching->write, touching->frame);
	return 0;
}

/* Aside, too: a private copy is not made of a page that one stands on. */
void ptw_touch_slow(uint64_t start, uint64_t size, bool write, const struct ptw_frame *frame)
{
	struct touching touching = {start, size, write, frame};
	if (__builtin_expect(ptw_stack_is_tracked(), 0))
		ptw_aside_with(touch_aside, &touching);
	else
		touch(start, size, write, frame);
}

void ptw_pages_boundary(void)
{
	PTW_ASIDE(ptw_pages_boundary);
	if (__builtin_expect(ptw_loader_pending, 0))
		ptw_loader_share();
	if (!ptw_tracking)
		return;
	int before = errno;
	ptw_instructions_again();
	if (__builtin_expect(ptw_revoke_behind(), 0))
		ptw_revoke_catch_up();
	if (ptw_options()->access == PTW_ACCESS_HELD) {
		if (ptw_private)
			ptw_view_boundary();
		ptw_held_boundary();
	} else {
		ptw_exact_boundary();
		ptw_windows_forget(&opening);
	}
	errno = before;
}

static bool private_and_held(void)
{
	return ptw_private && ptw_tracking && ptw_options()->access == PTW_ACCESS_HELD;
}

void ptw_pages_prepare(void)
{
	if (ptw_private)
		ptw_pages_boundary();
}

void ptw_pages_acquired(void)
{
	PTW_ASIDE(ptw_pages_acquired);
	if (!private_and_held()) {
		ptw_pages_boundary();
		return;
	}
	int before = errno;
	if (__builtin_expect(ptw_loader_pending, 0))
		ptw_loader_share();
	if (__builtin_expect(ptw_revoke_behind(), 0))
		ptw_revoke_catch_up();
	ptw_view_acquire();
	errno = before;
}

void ptw_pages_release(void)
{
	PTW_ASIDE(ptw_pages_release);
	if (!private_and_held()) {
		ptw_pages_boundary();
		return;
	}
	int before = errno;
	ptw_view_release();
	errno = before;
}

void ptw_pages_fresh(void)
{
	ptw_windows_forget(&opening);
	ptw_windows_forget(&upgrading);
	ptw_budget_begin(&faults);
	faults.sample = 0;
}

void ptw_pages_alone(bool alone)
{
	if (alone == (faults.sample != 0))
		return;
	ptw_budget_begin(&faults);
	faults.sample = alone ? ALONE_SAMPLE : 0;
}
