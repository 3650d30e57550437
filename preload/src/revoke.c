/* SPDX-License-Identifier: MIT */
/* Taking pages away; revoke.h says what is guaranteed. */
#define _GNU_SOURCE
#include "revoke.h"

#include "aside.h"
#include "control.h"
#include "pages.h"

#include <sys/uio.h>

enum { RANGES = sizeof(((struct ptw_revoked *)0)->range) / 8, LOOK = 64 << 10 };

PTW_CHANGING uint64_t ptw_revoked_seen;

/* Has the thread one of the pages open? Asked of its own table; when that cannot be read, it may. */
static bool opens(const struct ptw_slot *slot, uint32_t page, uint32_t pages)
{
	uint8_t states[1024];
	if (pages > LOOK)
		return true;
	for (uint32_t done = 0; done < pages;) {
		uint32_t count = pages - done < sizeof states ? pages - done : (uint32_t)sizeof states;
		struct iovec here = {states, count}, there = {ptw_page_states + page + done, count};
		if (PTW_SYS(SYS_process_vm_readv, slot->pid, &here, 1, &there, 1, 0) != (long)count)
			return true;
		for (uint32_t i = 0; i < count; i++)
			if (states[i] != PTW_CLOSED)
				return true;
		done += count;
	}
	return false;
}

void ptw_revoke(uint32_t page, uint32_t pages)
{
	struct ptw_revoked *all = ptw_revoked_ranges;
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_lock(&all->lock);
	uint64_t count = all->count;
	all->range[count % RANGES].page = page;
	all->range[count % RANGES].pages = pages;
	__atomic_store_n(&all->count, count + 1, __ATOMIC_SEQ_CST);
	ptw_unlock(&all->lock);
	ptw_pages_revoked(page, pages);
	if (ptw_revoked_seen == count)
		ptw_revoked_seen = count + 1;
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		if (i != ptw_slot_index && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PTW_SLOT_RUNNING &&
		    opens(slot, page, pages))
			ptw_control_request(slot, PTW_REQUEST_PAGES);
	}
	ptw_restore_signals(&mask);
}

void ptw_revoke_catch_up(void)
{
	PTW_ASIDE(ptw_revoke_catch_up);
	const struct ptw_revoked *all = ptw_revoked_ranges;
	uint64_t mask, now;
	ptw_block_signals(&mask);
	while ((now = __atomic_load_n(&all->count, __ATOMIC_ACQUIRE)) != ptw_revoked_seen) {
		uint64_t at = ptw_revoked_seen;
		uint32_t page = all->range[at % RANGES].page, pages = all->range[at % RANGES].pages;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&all->count, __ATOMIC_ACQUIRE) - at >= RANGES) { /* some were written over */
			ptw_revoked_seen = now;
			ptw_pages_revoked(0, (uint32_t)PTW_PAGES);
			continue;
		}
		ptw_revoked_seen = at + 1;
		ptw_pages_revoked(page, pages);
	}
	ptw_restore_signals(&mask);
}

void ptw_revoke_begin(void)
{
	ptw_revoked_seen = __atomic_load_n(&ptw_revoked_ranges->count, __ATOMIC_ACQUIRE);
}
