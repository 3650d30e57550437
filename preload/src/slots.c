/* SPDX-License-Identifier: MIT */
/* Slots; slots.h says what is guaranteed. */
#define _GNU_SOURCE
#include "slots.h"

#include "next.h"
#include "notice.h"
#include "real.h"

#include <errno.h>
#include <string.h>

__thread uint32_t ptw_slot_index __attribute__((tls_model("initial-exec")));
bool ptw_process_mode;

/* The C library's: another library that stands in front of it has data, which a process that begins cannot look at yet. */
static int (*lock_life)(pthread_mutex_t *);

void ptw_slot_prepare(struct ptw_slot *slot)
{
	pthread_mutexattr_t attributes;
	if (!lock_life)
		*(void **)&lock_life = ptw_next_in_libc("pthread_mutex_lock", PTW_NEXT_HASH("pthread_mutex_lock"));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	GLIBC(pthread_mutex_init)(&slot->life, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

/* What a thread that ended leaves behind: cleared when the slot is claimed again, so that late readers see its end. */
static void wipe(struct ptw_slot *slot)
{
	uint32_t generation = slot->generation + 1;
	memset(slot, 0, sizeof *slot);
	slot->generation = generation;
	ptw_slot_prepare(slot);
}

int ptw_slot_claim(void)
{
	static bool said;
	int found = -EAGAIN;
	ptw_lock(&ptw_shared->lock);
	for (uint32_t i = 1; i < PTW_SLOTS; i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_FREE)
			continue;
		wipe(slot);
		slot->state = PTW_SLOT_STARTING;
		if (i >= ptw_shared->slots_high)
			__atomic_store_n(&ptw_shared->slots_high, i + 1, __ATOMIC_RELEASE);
		found = (int)i;
		break;
	}
	ptw_unlock(&ptw_shared->lock);
	if (found < 0 && !said) {
		said = true;
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "no more than 1023 threads at once as processes: pthread_create fails");
	}
	return found;
}

void ptw_slot_free(uint32_t index)
{
	__atomic_store_n(&ptw_shared->slot[index].state, PTW_SLOT_FREE, __ATOMIC_RELEASE);
}

int ptw_slot_of(pthread_t thread)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	if (thread == pthread_self())
		return (int)ptw_slot_index;
	for (uint32_t i = 0; i < high; i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		if (slot->handle == thread && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_FREE)
			return (int)i;
	}
	return -1;
}

struct ptw_slot *ptw_slot_of_pid(pid_t pid)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_slot *slot = &ptw_shared->slot[i];
		if (slot->pid == (uint32_t)pid && slot->state != PTW_SLOT_FREE && !ptw_slot_gone(slot))
			return slot;
	}
	return NULL;
}

bool ptw_slot_had_pid(pid_t pid)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++)
		if (ptw_shared->slot[i].pid == (uint32_t)pid)
			return true;
	return false;
}

void ptw_slot_live(struct ptw_slot *slot)
{
	slot->pid = (uint32_t)ptw_gettid();
	(void)(lock_life ? lock_life : GLIBC(pthread_mutex_lock))(&slot->life);
	/* who waits says so first and then looks at the word; here it is the other way round */
	if (__atomic_load_n(&slot->awaited, __ATOMIC_SEQ_CST))
		ptw_shared_wake((uint32_t *)&slot->life.__data.__lock, INT32_MAX);
}
