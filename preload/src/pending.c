/* SPDX-License-Identifier: MIT */
/* Signals for the program; pending.h says what is guaranteed. */
#define _GNU_SOURCE
#include "pending.h"

#include "control.h"
#include "dispositions.h"
#include "handlers.h"
#include "handshake.h"

#include <errno.h>
#include <string.h>

enum { FREE = 0, KEPT, HANDED };

#define table ptw_pending_table

static bool realtime(int signal) { return signal > 31; }

static void enter(uint64_t *mask) { ptw_lock_masked(&table->lock, mask); }

static void leave(const uint64_t *mask) { ptw_unlock_masked(&table->lock, mask); }

/* --- entries; the lock is held --- */

/* After a kept entry of this number is none any more. */
static void recount(uint32_t signal)
{
	for (uint32_t i = 0; i < table->high; i++)
		if (table->entry[i].state == KEPT && table->entry[i].signal == signal)
			return;
	__atomic_fetch_and(&ptw_shared->signals_kept, ~PTW_BIT(signal), __ATOMIC_SEQ_CST);
}

static struct ptw_pending_entry *find_free(void)
{
	for (uint32_t i = 0; i < PTW_PENDING_MAX; i++) {
		if (table->entry[i].state != FREE)
			continue;
		if (i >= table->high)
			table->high = i + 1;
		return &table->entry[i];
	}
	return NULL;
}

/* The kept signal of `set` that comes first: lowest number, oldest. */
static struct ptw_pending_entry *first_kept(uint64_t set)
{
	struct ptw_pending_entry *found = NULL;
	if (!(ptw_shared->signals_kept & set))
		return NULL;
	for (uint32_t i = 0; i < table->high; i++) {
		struct ptw_pending_entry *entry = &table->entry[i];
		if (entry->state != KEPT || !(set & PTW_BIT(entry->signal)))
			continue;
		if (!found || entry->signal < found->signal ||
		    (entry->signal == found->signal && entry->order < found->order))
			found = entry;
	}
	return found;
}

static void release(struct ptw_pending_entry *entry)
{
	uint32_t signal = entry->signal, state = entry->state;
	entry->state = FREE;
	if (state == KEPT)
		recount(signal);
}

/* --- takers --- */

static bool can_take(const struct ptw_slot *slot, uint64_t bit)
{
	uint64_t waiting = __atomic_load_n(&slot->waiting, __ATOMIC_SEQ_CST);
	uint64_t blocked = __atomic_load_n(&slot->blocked, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PTW_SLOT_RUNNING && slot->pid != 0 &&
	       !ptw_slot_gone(slot) && (waiting & bit || !(blocked & bit));
}

/* The main thread first, as the kernel has it; then the sender, for whom it is delivered before it goes on; -1 none. */
static int find_taker(uint64_t bit)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	const uint32_t first[] = {ptw_shared->main_slot, ptw_slot_index};
	for (unsigned i = 0; i < 2; i++)
		if (can_take(&ptw_shared->slot[first[i]], bit))
			return (int)first[i];
	for (uint32_t i = 0; i < high; i++)
		if (can_take(&ptw_shared->slot[i], bit))
			return (int)i;
	return -1;
}

static bool sent_by_kernel(const siginfo_t *info) { return info->si_code >= 0 || info->si_code == SI_TKILL; }

static long send(const struct ptw_pending_entry *entry, const struct ptw_slot *slot)
{
	siginfo_t info = entry->info;
	if (sent_by_kernel(&info)) {
		memset(&info, 0, sizeof info);
		info.si_signo = (int)entry->signal;
		info.si_code = PTW_HANDED_OVER;
		info.si_value.sival_int = (int)(entry - table->entry);
	}
	return PTW_SYS(SYS_rt_tgsigqueueinfo, slot->pid, slot->pid, entry->signal, &info, 0, 0);
}

/* Give a kept entry to a thread. */
static void hand_to(struct ptw_pending_entry *entry, uint32_t index)
{
	uint64_t bit = PTW_BIT(entry->signal);
	struct ptw_slot *slot = &ptw_shared->slot[index];
	if (!(slot->waiting & bit) && ptw_dispositions_ignored((int)entry->signal)) {
		release(entry); /* as the kernel drops it on the way out */
		return;
	}
	__atomic_fetch_or(&slot->handed, bit, __ATOMIC_SEQ_CST);
	entry->target = index;
	entry->state = HANDED;
	recount(entry->signal);
	if (send(entry, slot) != 0) { /* it ended just now: nobody else is asked until something changes */
		entry->state = KEPT;
		__atomic_fetch_or(&ptw_shared->signals_kept, bit, __ATOMIC_SEQ_CST);
		return;
	}
	if (!sent_by_kernel(&entry->info))
		release(entry);
	if (index != ptw_slot_index && !can_take(slot, bit)) /* it changed its mind meanwhile */
		ptw_control_request(slot, PTW_REQUEST_SIGNALS);
}

static void keep(int signal, const siginfo_t *info)
{
	static bool said;
	if (!realtime(signal) && ptw_shared->signals_kept & PTW_BIT(signal))
		return; /* it is pending already */
	struct ptw_pending_entry *entry = find_free();
	if (!entry) {
		if (!said)
			ptw_say("more than 4096 signals pending for the program: further ones are lost");
		said = true;
		return;
	}
	entry->signal = (uint32_t)signal;
	entry->info = *info;
	entry->order = table->order++;
	entry->state = KEPT;
	__atomic_fetch_or(&ptw_shared->signals_kept, PTW_BIT(signal), __ATOMIC_SEQ_CST);
	int index = find_taker(PTW_BIT(signal));
	if (index >= 0)
		hand_to(entry, (uint32_t)index);
}

/* --- what others call --- */

void ptw_pending_post(int signal, const siginfo_t *info)
{
	uint64_t mask;
	siginfo_t copy = *info;
	enter(&mask);
	keep(signal, &copy);
	leave(&mask);
}

int ptw_pending_claim(uint64_t set, siginfo_t *ret)
{
	uint64_t mask;
	int signal = 0;
	if (!(ptw_pending_kept() & set))
		return 0;
	enter(&mask);
	struct ptw_pending_entry *entry = first_kept(set);
	if (entry) {
		signal = (int)entry->signal;
		*ret = entry->info;
		release(entry);
	}
	leave(&mask);
	return signal;
}

void ptw_pending_raise(uint64_t set)
{
	uint64_t mask;
	enter(&mask);
	for (struct ptw_pending_entry *entry; (entry = first_kept(set)) != NULL;) {
		hand_to(entry, ptw_slot_index);
		if (entry->state == KEPT)
			break; /* the kernel takes no more now */
	}
	leave(&mask);
}

/* Keep again what the kernel has pending for this thread, and what it dropped: where another one of the number was
 * pending, or on its way. The lock is held. */
static void take_back(uint64_t set)
{
	const struct timespec now = {0, 0};
	uint64_t left = set, kept = 0;
	siginfo_t info;
	long signal;
	while (left && (signal = PTW_SYS(SYS_rt_sigtimedwait, &left, &info, &now, sizeof left, 0, 0)) > 0) {
		bool own = info.si_code == SI_TKILL; /* sent to this thread, and stays its own */
		if (own)
			PTW_SYS(SYS_rt_tgsigqueueinfo, ptw_getpid(), ptw_gettid(), signal, &info, 0, 0);
		else if (info.si_code != PTW_HANDED_OVER && ptw_signal_arrived(&info))
			keep((int)signal, &info);
		if (own || !realtime((int)signal))
			left &= ~PTW_BIT(signal);
	}
	for (uint32_t i = 0; i < table->high; i++) {
		struct ptw_pending_entry *entry = &table->entry[i];
		if (entry->state != HANDED || entry->target != ptw_slot_index || !(set & PTW_BIT(entry->signal)))
			continue;
		uint64_t bit = PTW_BIT(entry->signal);
		if (kept & bit && !realtime((int)entry->signal)) { /* the kernel merged them */
			release(entry);
			continue;
		}
		kept |= bit;
		entry->state = KEPT;
		__atomic_fetch_or(&ptw_shared->signals_kept, bit, __ATOMIC_SEQ_CST);
		int index = find_taker(bit);
		if (index >= 0)
			hand_to(entry, (uint32_t)index);
	}
}

/* Whoever hands something to this thread looks, under the lock, whether it can take it, and has sent it by the end. */
void ptw_pending_return(void)
{
	struct ptw_slot *slot = ptw_slot();
	uint64_t mask, set = slot->blocked & ~slot->waiting;
	enter(&mask);
	uint64_t back = __atomic_fetch_and(&slot->handed, ~set, __ATOMIC_SEQ_CST) & set;
	if (back)
		take_back(back);
	leave(&mask);
}

void ptw_pending_redeem(siginfo_t *info)
{
	uint32_t index = (uint32_t)info->si_value.sival_int;
	uint64_t mask;
	if (info->si_code != PTW_HANDED_OVER || index >= PTW_PENDING_MAX)
		return;
	int signal = info->si_signo;
	enter(&mask);
	struct ptw_pending_entry *entry = &table->entry[index];
	if (entry->state == HANDED && (int)entry->signal == signal && entry->target == ptw_slot_index) {
		*info = entry->info;
		release(entry);
	}
	/* one that was sent while another was pending here was merged with it by the kernel */
	for (uint32_t i = 0; i < table->high && !realtime(signal); i++)
		if (table->entry[i].state == HANDED && (int)table->entry[i].signal == signal &&
		    table->entry[i].target == ptw_slot_index)
			release(&table->entry[i]);
	leave(&mask);
}

void ptw_pending_flush(int signal)
{
	uint64_t mask;
	if (!(ptw_pending_kept() & PTW_BIT(signal)))
		return;
	enter(&mask);
	for (struct ptw_pending_entry *entry; (entry = first_kept(PTW_BIT(signal)));)
		release(entry);
	leave(&mask);
}

void ptw_pending_forget(void)
{
	for (uint32_t i = 0; i < table->high; i++)
		table->entry[i].state = FREE;
	table->lock = table->high = 0;
	ptw_shared->signals_kept = 0;
}
