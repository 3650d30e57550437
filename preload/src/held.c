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
 *
 * Where threads take many pages from each other all the time, giving back costs more than the work done in between. A
 * thread that spends too much of its time so becomes reluctant: a page it gave back before it keeps for 2^reluctance
 * thunks more when it is asked again, and so do the others, until the pages are open to all who use them. The log says
 * what is so, held from this thunk to that one: sets too large, none missing. When conflicts get rare, so does keeping.
 */
#define _GNU_SOURCE
#include "access.h"
#include "pages_inner.h"
#include "twins.h"
#include "budget.h"

enum {
	CROWD = 63,
	PATIENT = 1,      /* conflicts about a page that do not count */
	CONTESTED = 0x7f, /* the count of conflicts about a page, saturating; and with this bit: */
	KEPT = 0x80,      /* it is asked for, and kept */
};

#define readers ((uint64_t *)PTW_META_READERS)
#define writers ((uint16_t *)PTW_META_WRITER)

/* Private view: readers who have mail about the page since they opened it. They close it when they can; once is enough. */
#define asked ((uint64_t *)PTW_META_ASKED)

#define contested ((uint8_t *)PTW_OWN_CONTESTED)

/* Pages that are kept although they were asked for, in any order, and the thunk in which each is given back. */
#define kept ((struct ptw_kept *)PTW_OWN_OPENED)
#define KEPT_MAX (PTW_OWN_OPENED_SIZE / 2 / sizeof(struct ptw_kept))
#define due_pages ((uint32_t *)(PTW_OWN_OPENED + PTW_OWN_OPENED_SIZE / 2))

struct ptw_kept {
	uint32_t page;
	uint32_t until;
};

static PTW_CHANGING uint32_t kept_count, next_due;
static PTW_CHANGING uint32_t thunk; /* boundaries of this thread */

/* For pages given back; its level is the reluctance. */
static PTW_CHANGING struct ptw_budget budget = {.least = 3, .most = 12};

void ptw_held_begin(void)
{
	kept_count = next_due = thunk = 0;
	ptw_budget_begin(&budget);
}

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

static uint64_t bit_of_slot(void) { return ptw_slot_index < CROWD ? 1ull << ptw_slot_index : 0; }

static uint64_t own_bit(void) { return 1ull << (ptw_slot_index < CROWD ? ptw_slot_index : CROWD); }

void ptw_held_ask_again(uint32_t page)
{
	if (ptw_private && page < PTW_MEMFD_PAGES && __atomic_load_n(&asked[page], __ATOMIC_SEQ_CST) & bit_of_slot())
		__atomic_fetch_and(&asked[page], ~bit_of_slot(), __ATOMIC_SEQ_CST);
}

void ptw_held_opened(uint32_t page, uint32_t count, bool write)
{
	uint64_t bit = own_bit();
	uint16_t me = (uint16_t)(ptw_slot_index + 1);
	for (uint32_t i = page; i < page + count; i++) {
		ptw_held_ask_again(i);
		uint64_t mask = __atomic_fetch_or(&readers[i], bit, __ATOMIC_SEQ_CST);
		uint16_t writer = write ? __atomic_exchange_n(&writers[i], me, __ATOMIC_SEQ_CST)
					: __atomic_load_n(&writers[i], __ATOMIC_SEQ_CST);
		if (writer && writer != me)
			post(writer - 1u, i);
		if (write && (mask & ~bit_of_slot()))
			post_readers(mask & ~bit_of_slot(), i);
	}
}

static void leave(uint32_t page)
{
	uint16_t me = (uint16_t)(ptw_slot_index + 1);
	if (ptw_slot_index < CROWD)
		__atomic_fetch_and(&readers[page], ~own_bit(), __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(&writers[page], &me, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

void ptw_held_left(uint32_t page, uint32_t count)
{
	for (uint32_t i = page; i < page + count; i++)
		leave(i);
}

static bool held(uint32_t page)
{
	return ptw_page_states[page] == PTW_READ || ptw_page_states[page] == PTW_WRITE;
}

/* Pages beside each other that leave_all has come by, and not closed yet. */
static PTW_CHANGING struct { uint32_t first, count; } leaving;

static void leave_those(void)
{
	if (leaving.count)
		ptw_pages_set(leaving.first, leaving.count, PTW_CLOSED);
	ptw_held_left(leaving.first, leaving.count);
	leaving.count = 0;
}

static void leave_this(uint32_t page)
{
	if (!held(page))
		return;
	if (leaving.count && (page != leaving.first + leaving.count || !ptw_page_beside(page - 1, page)))
		leave_those();
	if (leaving.count++ == 0)
		leaving.first = page;
}

/* Mail was lost: give up every page that is held. */
static void leave_all(void)
{
	ptw_pages_visit(leave_this);
	leave_those();
	while (kept_count > 0)
		contested[kept[--kept_count].page] &= CONTESTED;
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

/* What a thread writes to again and again stays open to it: in the private view nobody waits for it, and its commits say
 * what it writes when. When it does not any more, the page is closed for that. */
static bool busy(uint32_t page) { return ptw_private && page < PTW_MEMFD_PAGES && ptw_copy_find(page); }

void ptw_held_committed(uint32_t page)
{
	const uint64_t crowd = 1ull << CROWD;
	uint64_t others = __atomic_load_n(&readers[page], __ATOMIC_SEQ_CST) & ~bit_of_slot();
	others &= ~__atomic_load_n(&asked[page], __ATOMIC_SEQ_CST) | crowd;
	if (others & ~crowd)
		others &= ~__atomic_fetch_or(&asked[page], others & ~crowd, __ATOMIC_SEQ_CST) | crowd;
	if (others)
		post_readers(others, page);
}

void ptw_held_give_back(uint32_t *pages, uint32_t count)
{
	if (count == 0)
		return;
	ptw_pages_close(pages, count);
	for (uint32_t i = 0; i < count; i++)
		leave(pages[i]);
	log_closed(pages, count);
	ptw_budget_spend(&budget, count);
}

/* Somebody asks for a page that is held. True: it is kept for some time. */
static bool keep(uint32_t page)
{
	uint8_t *conflicts = &contested[page];
	if (*conflicts & KEPT)
		return true;
	if (*conflicts < CONTESTED)
		++*conflicts;
	/* private view: a page that is read shows what others commit, and they do not wait for it */
	uint8_t patient = ptw_private && ptw_page_states[page] == PTW_READ ? 0 : PATIENT;
	if (budget.level == 0 || *conflicts <= patient || kept_count == KEPT_MAX)
		return false;
	*conflicts |= KEPT;
	/* many fall due together: pages beside each other are closed at once */
	uint32_t until = ((thunk >> budget.level) + 2) << budget.level;
	if (kept_count == 0 || until < next_due)
		next_due = until;
	kept[kept_count++] = (struct ptw_kept){page, until};
	return true;
}

static void give_back_due(void)
{
	uint32_t left = 0, count = 0;
	next_due = UINT32_MAX;
	for (uint32_t i = 0; i < kept_count; i++) {
		struct ptw_kept one = kept[i];
		if (one.until > thunk) {
			kept[left++] = one;
			next_due = one.until < next_due ? one.until : next_due;
			continue;
		}
		contested[one.page] &= CONTESTED;
		if (held(one.page))
			due_pages[count++] = one.page;
	}
	kept_count = left;
	ptw_held_give_back(due_pages, count);
}

static void read_mail(struct ptw_slot *slot)
{
	uint32_t *pages = mailbox(ptw_slot_index), wanted = 0, count;
	ptw_lock(&slot->mail_lock);
	count = slot->mail;
	bool all = slot->overflow;
	/* in place: nobody writes here while the lock is held, and what is kept is overwritten */
	for (uint32_t i = 0; i < count && !all; i++)
		if (held(pages[i]) && !busy(pages[i]) && !keep(pages[i]))
			pages[wanted++] = pages[i];
	if (all)
		leave_all();
	else
		ptw_held_give_back(pages, wanted);
	slot->overflow = 0;
	__atomic_store_n(&slot->mail, 0, __ATOMIC_RELEASE);
	ptw_unlock(&slot->mail_lock);
}

static __attribute__((noinline)) void answer(struct ptw_slot *slot)
{
	uint64_t mask;
	ptw_block_signals(&mask);
	if (kept_count && thunk >= next_due)
		give_back_due();
	if (__atomic_load_n(&slot->mail, __ATOMIC_ACQUIRE) != 0)
		read_mail(slot);
	ptw_restore_signals(&mask);
}

void ptw_held_boundary(void)
{
	struct ptw_slot *slot = ptw_slot();
	thunk++;
	if (__builtin_expect(__atomic_load_n(&slot->mail, __ATOMIC_ACQUIRE) != 0 || (kept_count && thunk >= next_due), 0))
		answer(slot);
}
