/* SPDX-License-Identifier: MIT */
/*
 * Held pages: a page stays open to a thread until another's access conflicts with it.
 *
 * For each page shared memory has a mask of readers and the slot of the last writer. Who opens a page enters itself and
 * then looks who else is there, both sequentially consistent: of two that conflict at least one sees the other. The
 * holder is not waited for: the page's number goes to its mailbox, and it closes the page at its next boundary. So what
 * is logged is "held from this thunk to that one".
 *
 * Readers have a bit each up to slot 62; the others share the last bit, which is never cleared, and all get the mail.
 */
#define _GNU_SOURCE
#include "access.h"

enum { CROWD = 63 };

#define readers ((uint64_t *)PTW_META_READERS)
#define writers ((uint16_t *)PTW_META_WRITER)

static uint32_t *mailbox(uint32_t slot) { return (uint32_t *)PTW_META_MAILBOX + (uint64_t)slot * PTW_MAILBOX; }

static void post(uint32_t to, uint32_t page)
{
	struct ptw_slot *slot = &ptw_shared->slot[to];
	uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
	if (to == ptw_slot_index || (state != PTW_SLOT_RUNNING && state != PTW_SLOT_STARTING))
		return;
	ptw_lock(&slot->mail_lock);
	uint32_t count = slot->mail;
	if (count < PTW_MAILBOX) {
		mailbox(to)[count] = page;
		__atomic_store_n(&slot->mail, count + 1, __ATOMIC_RELEASE);
	} else {
		slot->overflow = 1;
	}
	ptw_unlock(&slot->mail_lock);
}

static void post_readers(uint64_t mask, uint32_t page)
{
	if (mask >> CROWD) {
		uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
		for (uint32_t slot = CROWD; slot < high; slot++)
			post(slot, page);
		mask &= (1ull << CROWD) - 1;
	}
	for (; mask; mask &= mask - 1)
		post((uint32_t)__builtin_ctzll(mask), page);
}

static uint64_t own_bit(void) { return 1ull << (ptw_slot_index < CROWD ? ptw_slot_index : CROWD); }

void ptw_held_opened(uint32_t page, uint32_t count, bool write)
{
	uint64_t bit = own_bit();
	uint16_t me = (uint16_t)(ptw_slot_index + 1);
	for (uint32_t i = page; i < page + count; i++) {
		uint64_t mask = __atomic_fetch_or(&readers[i], bit, __ATOMIC_SEQ_CST);
		uint16_t writer = write ? __atomic_exchange_n(&writers[i], me, __ATOMIC_SEQ_CST)
					: __atomic_load_n(&writers[i], __ATOMIC_SEQ_CST);
		if (writer && writer != me)
			post(writer - 1u, i);
		if (write && (mask & ~(ptw_slot_index < CROWD ? bit : 0)))
			post_readers(mask & ~(ptw_slot_index < CROWD ? bit : 0), i);
	}
}

static void leave(uint32_t page)
{
	uint16_t me = (uint16_t)(ptw_slot_index + 1);
	if (ptw_slot_index < CROWD)
		__atomic_fetch_and(&readers[page], ~own_bit(), __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(&writers[page], &me, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static bool held(uint32_t page)
{
	return ptw_page_states[page] == PTW_READ || ptw_page_states[page] == PTW_WRITE;
}

/* Mail was lost: give up every page that is held. Seldom, so the states are looked through. */
static void leave_all(void)
{
	for (uint64_t page = 0; page < PTW_PAGES; page++) {
		if (page % 8 == 0 && *(const uint64_t *)(ptw_page_states + page) == 0) {
			page += 7;
			continue;
		}
		if (!held((uint32_t)page))
			continue;
		ptw_pages_set((uint32_t)page, 1, PTW_CLOSED);
		leave((uint32_t)page);
	}
	ptw_access_log_end(0, 0);
}

static void log_closed(const uint32_t *pages, uint32_t count)
{
	for (uint32_t i = 0; i < count;) {
		uint32_t first = pages[i], end = first + 1;
		for (i++; i < count && pages[i] <= end; i++)
			end = pages[i] + 1;
		ptw_access_log_end(ptw_page_address(first), end - first);
	}
}

static __attribute__((noinline)) void read_mail(struct ptw_slot *slot)
{
	uint32_t *pages = mailbox(ptw_slot_index), kept = 0, count;
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_lock(&slot->mail_lock);
	count = slot->mail;
	bool all = slot->overflow;
	/* in place: nobody writes here while the lock is held, and what is not kept is overwritten */
	for (uint32_t i = 0; i < count && !all; i++)
		if (held(pages[i]))
			pages[kept++] = pages[i];
	if (all) {
		leave_all();
	} else if (kept) {
		ptw_pages_close(pages, kept);
		for (uint32_t i = 0; i < kept; i++)
			leave(pages[i]);
		log_closed(pages, kept);
	}
	slot->overflow = 0;
	__atomic_store_n(&slot->mail, 0, __ATOMIC_RELEASE);
	ptw_unlock(&slot->mail_lock);
	ptw_restore_signals(&mask);
}

void ptw_held_boundary(void)
{
	struct ptw_slot *slot = ptw_slot();
	if (__builtin_expect(__atomic_load_n(&slot->mail, __ATOMIC_ACQUIRE) != 0, 0))
		read_mail(slot);
}
