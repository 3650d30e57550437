/* SPDX-License-Identifier: MIT */
/*
 * The private view; view.h says what is guaranteed.
 *
 * The kernel makes the copies: tracked memory is mapped MAP_PRIVATE, so a page that was not written shows the shared
 * memory as it is now, and is never out of date. What is written is copied at once, when it is opened, and the twin is
 * taken from the copy: both are the same whatever others store meanwhile. A copy is given up by MADV_DONTNEED.
 *
 * A mapping of which a page was ever copied has the kernel's bookkeeping (anon_vma) for all of it, also for the parts
 * that mprotect cuts it into: only such parts become one again. So a page of a large mapping is copied at the start.
 *
 * With held pages, copies stay open over boundaries and are compared at each. That costs less than to close and to open
 * a page again, but not if it is never written to again. So a page that did not change at the first boundary after it did
 * is closed; each time it is written to all the same, there is four times more patience with it. To close and to open
 * costs as much as two hundred comparisons: that is about where patience ends.
 */
#define _GNU_SOURCE
#include "view.h"

#include "access.h"
#include "aside.h"
#include "commit.h"
#include "control.h"
#include "engine.h"
#include "fault.h"
#include "options.h"
#include "region.h"
#include "revoke.h"
#include "segments.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { MOST_PATIENCE = 4, LARGE = 1 << 22, FEW = 1 << 14, MANY = 4, TICK_NS = 20000000, SLOW_TICK_NS = 400000000 };

#define patience_with ((uint8_t *)PTW_OWN_PATIENCE) /* by page: 4^this many boundaries */

PTW_CHANGING bool ptw_private;

static void must(long result, const char *what)
{
	if (result < 0 && result >= -4095)
		ptw_fault_fatal(what, result);
}

static void protect(uint32_t page, uint32_t count, int protection)
{
	must(PTW_SYS(SYS_mprotect, ptw_page_address(page), count * PTW_PAGE, protection, 0, 0, 0),
	     "mprotect failed: too many mappings (vm.max_map_count) or no memory");
}

static void map(uint32_t page, uint32_t count, int sharing)
{
	must(PTW_SYS(SYS_mmap, ptw_page_address(page), count * PTW_PAGE, PROT_READ | PROT_WRITE,
		     sharing | MAP_FIXED | MAP_NORESERVE, ptw_region_fd(), page * PTW_PAGE),
	     "mmap failed: too many mappings (vm.max_map_count) or no memory");
	PTW_SYS(SYS_madvise, ptw_page_address(page), count * PTW_PAGE, MADV_DONTDUMP, 0, 0, 0);
}

static void empty(uint32_t page, uint32_t count)
{
	PTW_SYS(SYS_madvise, ptw_page_address(page), count * PTW_PAGE, MADV_DONTNEED, 0, 0, 0);
}

/* --- mapping --- */

void ptw_view_map(uint32_t page, uint32_t count)
{
	map(page, count, MAP_PRIVATE);
	if (count * PTW_PAGE >= LARGE) {
		volatile char *first = (volatile char *)ptw_page_address(page);
		*first = *first;
		empty(page, 1);
	}
	protect(page, count, PROT_NONE);
}

/* A race passes the page through: then the copy may be gone afterwards. */
static void commit(struct ptw_copy *copy)
{
	uint32_t page = copy->page;
	int race = -1;
	copy->changed |= ptw_commit(copy, &race);
	if (race >= 0)
		ptw_view_pass(ptw_page_address(page) + (uint32_t)race, 0);
}

static void forget(uint32_t page, uint32_t count)
{
	for (uint32_t i = page; i < page + count; i++) {
		if (ptw_copy_find(i))
			commit(ptw_copy_find(i));
		if (ptw_copy_find(i))
			ptw_copy_remove(ptw_copy_find(i));
	}
}

void ptw_view_unshare(uint32_t page, uint32_t count)
{
	memset(&ptw_copy_of[page], 0, count * sizeof *ptw_copy_of);
	ptw_view_map(page, count);
}

void ptw_view_is_shared(uint32_t page, uint32_t count)
{
	memset(&ptw_copy_of[page], 0xff, count * sizeof *ptw_copy_of);
}

void ptw_view_share(uint32_t page, uint32_t count)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	forget(page, count);
	map(page, count, MAP_SHARED);
	ptw_view_is_shared(page, count);
	for (uint32_t i = page; i < page + count; i++)
		ptw_held_ask_again(i);
	ptw_restore_signals(&mask);
}

void ptw_view_loosen(uint32_t page, uint32_t count)
{
	for (uint32_t i = page; i < page + count; i++)
		if (!(ptw_page_traits[i] & PTW_LOOSE))
			__atomic_fetch_or(&ptw_page_traits[i], PTW_LOOSE, __ATOMIC_SEQ_CST);
}

/* --- opening and closing --- */

static bool passed(uint32_t page) { return __atomic_load_n(&ptw_page_traits[page], __ATOMIC_SEQ_CST) & PTW_PASSED; }

/* They are in the list, without twins. */
static void make_copies(uint32_t page, uint32_t count)
{
	char *start = (char *)ptw_page_address(page);
	for (uint32_t i = 0; i < count; i++)
		ptw_copies[ptw_copy_of[page + i] - 1].version =
			__atomic_load_n(&ptw_page_versions[page + i], __ATOMIC_ACQUIRE);
	protect(page, count, PROT_READ | PROT_WRITE);
	if (count < MANY || PTW_SYS(SYS_madvise, start, count * PTW_PAGE, MADV_POPULATE_WRITE, 0, 0, 0) != 0)
		for (uint32_t i = 0; i < count; i++)
			__asm__ volatile("lock orb $0, %0" : "+m"(start[i * PTW_PAGE]));
	for (uint32_t i = 0; i < count; i++)
		memcpy(ptw_twin(&ptw_copies[ptw_copy_of[page + i] - 1]), start + i * PTW_PAGE, PTW_PAGE);
}

void ptw_view_give_up(void)
{
	while (ptw_copy_count)
		ptw_pages_set(ptw_copies[ptw_copy_count - 1].page, 1, PTW_CLOSED);
}

static void write_one(uint32_t page)
{
	if (ptw_copy_of[page] == PTW_SHARED_HERE) {
		protect(page, 1, PROT_READ | PROT_WRITE);
	} else if (passed(page)) {
		if (ptw_page_traits[page] & PTW_UNTOLD)
			ptw_view_met(page);
		ptw_view_share(page, 1);
	} else {
		/* who passes the page through sets the trait and then looks for copies; here it is the other way round */
		struct ptw_copy *copy = ptw_copy_add(page);
		if (!passed(page)) {
			make_copies(page, 1);
		} else {
			ptw_copy_remove(copy);
			ptw_view_share(page, 1);
		}
	}
}

void ptw_view_write(uint32_t page, uint32_t count)
{
	uint64_t mask;
	bool plain = true;
	ptw_block_signals(&mask);
	if (ptw_copy_count + count > PTW_TWINS)
		ptw_view_give_up(); /* no room for more twins */
	for (uint32_t i = page; i < page + count; i++)
		plain = plain && ptw_copy_of[i] == PTW_NO_COPY && !passed(i);
	for (uint32_t i = page; i < page + count; i++) {
		if (!plain || count == 1)
			write_one(i);
		else
			ptw_copy_add(i);
	}
	if (plain && count > 1)
		make_copies(page, count);
	ptw_restore_signals(&mask);
}

void ptw_view_leave(uint32_t page, uint32_t count)
{
	uint32_t end = page + count;
	for (uint32_t i = page; i < end; i++) {
		if (!ptw_copy_find(i))
			continue;
		uint32_t first = i;
		while (i < end && ptw_copy_find(i))
			i++;
		forget(first, i - first);
		empty(first, i - first);
	}
}

/* --- boundaries --- */

/* Committed, up to date; and shared, if it is to be. */
static void settle(struct ptw_copy *copy)
{
	uint32_t page = copy->page;
	commit(copy);
	if (!ptw_copy_find(page))
		return;
	if (passed(page))
		ptw_view_share(page, 1);
	else
		ptw_refresh(copy);
}

/* A page passed through takes others along: so the list may have become shorter. */
static void settle_all(void)
{
	for (uint32_t i = ptw_copy_count; i-- > 0;)
		if (i < ptw_copy_count)
			settle(&ptw_copies[i]);
}

/* `more`: boundaries that passed. */
static void count_idle(uint16_t more)
{
	for (uint32_t i = 0; i < ptw_copy_count; i++) {
		struct ptw_copy *copy = &ptw_copies[i];
		if (copy->changed)
			ptw_held_committed(copy->page);
		copy->idle = copy->changed ? 0 : (uint16_t)(copy->idle + more);
		copy->changed = 0;
	}
}

/* Held pages that are not written to any more. */
static void close_idle(void)
{
	uint32_t *pages = (uint32_t *)PTW_OWN_IDLE, count = 0;
	for (uint32_t i = 0; i < ptw_copy_count; i++) {
		const struct ptw_copy *copy = &ptw_copies[i];
		uint8_t *patience = &patience_with[copy->page];
		if (copy->idle < 1u << 2 * *patience)
			continue;
		if (*patience < MOST_PATIENCE)
			++*patience;
		pages[count++] = copy->page;
	}
	if (count)
		ptw_held_give_back(pages, count);
}

void ptw_view_boundary(void)
{
	uint64_t mask;
	if (ptw_copy_count == 0)
		return;
	ptw_block_signals(&mask);
	settle_all();
	if (ptw_options()->access == PTW_ACCESS_HELD) {
		count_idle(1);
		close_idle();
	}
	ptw_restore_signals(&mask);
}

void ptw_view_release(void)
{
	uint64_t mask;
	if (ptw_copy_count == 0)
		return;
	ptw_block_signals(&mask);
	settle_all();
	count_idle(0); /* the boundary before the next lock is the same one */
	ptw_restore_signals(&mask);
}

void ptw_view_acquire(void)
{
	uint64_t mask;
	if (ptw_copy_count == 0)
		return;
	ptw_block_signals(&mask);
	for (uint32_t i = ptw_copy_count; i-- > 0;) {
		if (i >= ptw_copy_count)
			continue;
		if (passed(ptw_copies[i].page))
			ptw_view_share(ptw_copies[i].page, 1);
		else
			ptw_refresh(&ptw_copies[i]);
	}
	ptw_restore_signals(&mask);
}

void ptw_view_exchange(void)
{
	uint64_t mask;
	if (ptw_copy_count == 0 || __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_RELAXED) < 2)
		return; /* there was never another thread */
	PTW_ASIDE(ptw_view_exchange);
	ptw_block_signals(&mask);
	settle_all();
	ptw_restore_signals(&mask);
}

static void start_ticking(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = PTW_CONTROL_SIGNAL};
	const long tick = ptw_under_engine() ? SLOW_TICK_NS : TICK_NS; /* there all takes that much longer */
	const struct itimerspec span = {{0, tick}, {0, tick}};
	int timer;
	event._sigev_un._tid = ptw_gettid();
	if (PTW_SYS(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer, 0, 0, 0) == 0)
		PTW_SYS(SYS_timer_settime, timer, 0, &span, 0, 0, 0);
}

void ptw_view_begin(void)
{
	ptw_twins_begin();
	start_ticking();
}

/* What the C library and late destructors still do in this process is for everybody. */
void ptw_view_end(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	const struct ptw_slot *slot = ptw_slot();
	uint32_t stack = ptw_page_of(slot->stack), end = stack + (uint32_t)(slot->stack_size / PTW_PAGE);
	uint64_t mask;
	ptw_block_signals(&mask);
	settle_all();
	while (ptw_copy_count)
		ptw_copy_remove(&ptw_copies[ptw_copy_count - 1]);
	ptw_private = false;
	if (end <= PTW_REGION_PAGES) {
		map(0, stack, MAP_SHARED);
		map(end, (uint32_t)(PTW_REGION_PAGES - end), MAP_SHARED);
	}
	for (uint32_t i = 0; i < all->count && end <= PTW_REGION_PAGES; i++)
		if (ptw_segments_here(i))
			map((uint32_t)all->segment[i].page,
			    (uint32_t)((all->segment[i].end - all->segment[i].start) / PTW_PAGE), MAP_SHARED);
	ptw_restore_signals(&mask);
}

/* --- single pages, between boundaries --- */

static void settle_page(uint32_t page)
{
	uint64_t mask;
	ptw_block_signals(&mask); /* until then a handler may have given the copy up */
	if (ptw_copy_find(page))
		settle(ptw_copy_find(page));
	ptw_restore_signals(&mask);
}

static long settle_aside(void *page)
{
	settle_page(*(const uint32_t *)page);
	return 0;
}

static void settle_range(uint64_t start, uint64_t size, uint8_t only)
{
	uint32_t first = ptw_page_of(start), count;
	if (first >= PTW_MEMFD_PAGES || size == 0)
		return;
	count = (uint32_t)(((start & (PTW_PAGE - 1)) + size + PTW_PAGE - 1) / PTW_PAGE);
	for (uint32_t i = first; i < first + count; i++) {
		if (!ptw_copy_find(i) || (only && !(ptw_page_traits[i] & only)))
			continue;
		if (__builtin_expect(ptw_stack_is_tracked(), 0))
			ptw_aside_with(settle_aside, &i);
		else
			settle_page(i);
	}
}

void ptw_view_use(uint64_t address)
{
	uint32_t page = ptw_page_of(address);
	if (page >= PTW_MEMFD_PAGES)
		return;
	ptw_view_loosen(page, 1);
	settle_range(address, 1, 0);
	if (ptw_page_of(address + 63) == page + 1) {
		ptw_view_loosen(page + 1, 1);
		settle_range(address + 63, 1, 0);
	}
}

void ptw_view_give(uint64_t address, uint64_t size, bool away) { settle_range(address, size, away ? 0 : PTW_LOOSE); }

void ptw_view_look(const void *at, uint64_t size) { settle_range((uint64_t)at, size, 0); }

void ptw_view_lose(uint64_t start, uint64_t size)
{
	uint32_t page = ptw_page_of(start), end = page + (uint32_t)(size / PTW_PAGE);
	if (end - page > ptw_copy_count) {
		for (uint32_t i = ptw_copy_count; i-- > 0;)
			if (ptw_copies[i].page - page < end - page)
				ptw_pages_set(ptw_copies[i].page, 1, PTW_CLOSED);
		return;
	}
	for (; page < end; page++)
		if (ptw_copy_find(page))
			ptw_pages_set(page, 1, PTW_CLOSED);
}

void ptw_view_changed(uint64_t start, uint64_t size)
{
	uint32_t page = ptw_page_of(start), count = (uint32_t)(size / PTW_PAGE);
	if (count > FEW) {
		ptw_revoke(page, count);
		return;
	}
	for (uint32_t i = page; i < page + count; i++)
		__atomic_fetch_add(&ptw_page_versions[i], PTW_CHANGES, __ATOMIC_RELEASE);
}

void ptw_view_put(void *to, const void *from, uint64_t size)
{
	uint32_t page = ptw_page_of((uint64_t)to);
	if (page >= PTW_MEMFD_PAGES) {
		memcpy(to, from, size);
		return;
	}
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_page_lock(page);
	memcpy(ptw_page_alias(page) + ((uint64_t)to & (PTW_PAGE - 1)), from, size);
	__atomic_fetch_add(&ptw_page_versions[page], PTW_CHANGES, __ATOMIC_RELEASE);
	ptw_page_unlock(page);
	ptw_restore_signals(&mask);
}
