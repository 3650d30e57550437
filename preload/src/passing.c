/* SPDX-License-Identifier: MIT */
/*
 * Pages that are passed through: private copies would break what the program does there. Atomic instructions work on
 * memory everybody sees; a byte that two threads change without an order between them was meant so, or is a bug.
 *
 * Where the program's instructions name the memory of atomics, pages are passed through from the start
 * (atomic_places.h). Other atomics are met when they fault. Who finds one says so, once a page; asks the others to commit
 * and give up their copies of it, and waits until they have, but no longer than PATIENCE: a process may be stopped.
 * Who naps has committed, and gives its copy up before it goes on; so nobody's sleep is ended. What the others did before
 * that is committed byte by byte, so an atomic on a copy may be lost only if two processes made one each while both had
 * the page open for writing already; that is found at the second commit, as a race.
 */
#define _GNU_SOURCE
#include "view.h"

#include "aside.h"
#include "atomic_places.h"
#include "commit.h"
#include "control.h"
#include "notice.h"
#include "pages.h"
#include "shared_lock.h"
#include "slots.h"

#define PATIENCE_NS 1000000000ull
#define PAUSE_NS 20000

static bool mark(uint32_t page)
{
	ptw_page_lock(page); /* a commit under way takes the page for one that only commits change */
	uint8_t before = __atomic_fetch_or(&ptw_page_traits[page], PTW_PASSED | PTW_LOOSE, __ATOMIC_SEQ_CST);
	ptw_page_unlock(page);
	return !(before & PTW_PASSED);
}

void ptw_view_serve(void)
{
	PTW_ASIDE(ptw_view_serve);
	uint64_t mask, asked = __atomic_load_n(&ptw_shared->view_asked, __ATOMIC_SEQ_CST);
	ptw_block_signals(&mask);
	for (uint32_t i = ptw_copy_count; i-- > 0;)
		if (i < ptw_copy_count && (ptw_page_traits[ptw_copies[i].page] & PTW_PASSED))
			ptw_view_share(ptw_copies[i].page, 1);
	ptw_view_exchange();
	__atomic_store_n(&ptw_slot()->view_served, asked, __ATOMIC_SEQ_CST);
	ptw_restore_signals(&mask);
}

static uint64_t ask_others(void)
{
	uint64_t asked = __atomic_add_fetch(&ptw_shared->view_asked, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		if (i != ptw_slot_index && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PTW_SLOT_RUNNING)
			ptw_control_request(slot, PTW_REQUEST_VIEW);
	}
	return asked;
}

/* May somebody still write to a copy it had when it was asked? */
static bool waits_for_others(uint64_t asked)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		if (i != ptw_slot_index && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PTW_SLOT_RUNNING &&
		    !__atomic_load_n(&slot->napping, __ATOMIC_SEQ_CST) &&
		    __atomic_load_n(&slot->view_served, __ATOMIC_SEQ_CST) < asked && !ptw_slot_gone(slot))
			return true;
	}
	return false;
}

/* Meanwhile somebody may wait for us. */
static void pause_serving(int tries)
{
	ptw_view_serve();
	if (tries < 100)
		PTW_SYS(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	else
		ptw_sleep_ns(PAUSE_NS);
}

void ptw_view_spread(void)
{
	if (!ptw_private || __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_RELAXED) < 2)
		return;
	uint64_t asked = ask_others(), end = ptw_monotonic_ns() + PATIENCE_NS;
	for (int tries = 0; waits_for_others(asked) && ptw_monotonic_ns() < end; tries++)
		pause_serving(tries);
}

static uint32_t others_copies(uint32_t page)
{
	uint32_t all = __atomic_load_n(&ptw_page_copies[page], __ATOMIC_SEQ_CST);
	return all - (ptw_copy_find(page) ? 1 : 0);
}

/* The supervisor names the instruction and the memory. */
static void tell(uint64_t address, uint64_t code)
{
	ptw_notice_about(PTW_NOTICE_ATOMIC, (const void *)code, (const void *)address,
			 code ? "an atomic instruction, in the private view: its page is passed through from here on"
			      : "two threads changed the same byte without an order between them, in the private view: "
				"its page is passed through from here on");
}

void ptw_view_pass(uint64_t address, uint64_t code)
{
	uint32_t page = ptw_page_of(address);
	if (page >= PTW_MEMFD_PAGES || !mark(page))
		return;
	tell(address, code);
	if (!others_copies(page))
		return;
	uint64_t asked = ask_others(), end = ptw_monotonic_ns() + PATIENCE_NS;
	for (int tries = 0; others_copies(page) && waits_for_others(asked) && ptw_monotonic_ns() < end; tries++)
		pause_serving(tries);
}

void ptw_view_expect(uint32_t page)
{
	__atomic_fetch_or(&ptw_page_traits[page], PTW_PASSED | PTW_LOOSE | PTW_UNTOLD, __ATOMIC_SEQ_CST);
}

void ptw_view_met(uint32_t page)
{
	uint64_t address, code;
	if (__atomic_fetch_and(&ptw_page_traits[page], ~PTW_UNTOLD, __ATOMIC_SEQ_CST) & PTW_UNTOLD &&
	    ptw_atomic_places_find(page, &address, &code))
		tell(address, code);
}
