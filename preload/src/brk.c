/* SPDX-License-Identifier: MIT */
/*
 * Process mode: brk and sbrk. What lies below the break is shared by all threads: a run of the heap, taken when the
 * break is first asked for. (The C library's own use of the break is its own.) Errors as the kernel has them.
 */
#define _GNU_SOURCE
#include "early.h"
#include "heap.h"
#include "limits.h"
#include "pages.h"
#include "slots.h"
#include "units.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

#define ROOM (4ull << 30)

/* Where it begins; 0 when there is no room. Under the lock. */
static uint64_t beginning(void)
{
	struct ptw_meta *meta = ptw_shared;
	if (meta->break_start == 0) {
		uint32_t first = ptw_units_take(ROOM / PTW_UNIT, true);
		if (first == UINT32_MAX)
			return 0;
		meta->break_start = meta->break_now = ptw_unit_address(first);
		ptw_pages_limit(meta->break_start, ROOM, PTW_UNMAPPED);
	}
	return meta->break_start;
}

static bool set(uint64_t wanted)
{
	struct ptw_meta *meta = ptw_shared;
	uint64_t start = beginning(), before = ptw_page_up(meta->break_now), after = ptw_page_up(wanted);
	if (!start || wanted < start || wanted > start + ROOM)
		return false;
	if (after > before) {
		ptw_pages_limit(before, after - before, PROT_READ | PROT_WRITE);
	} else if (after < before) {
		ptw_pages_limit(after, before - after, PTW_UNMAPPED);
		PTW_SYS(SYS_madvise, after - PTW_REGION + PTW_ALIAS, before - after, MADV_REMOVE, 0, 0, 0);
	}
	meta->break_now = wanted;
	return true;
}

PTW_EXPORT int brk(void *wanted)
{
	if (!ptw_heap_is_ours()) {
		long now = PTW_SYS(SYS_brk, wanted, 0, 0, 0, 0, 0);
		if (now < (long)wanted)
			errno = ENOMEM;
		return now < (long)wanted ? -1 : 0;
	}
	ptw_lock(&ptw_shared->break_lock);
	bool done = set((uint64_t)wanted);
	ptw_unlock(&ptw_shared->break_lock);
	if (!done)
		errno = ENOMEM;
	return done ? 0 : -1;
}

PTW_EXPORT void *sbrk(intptr_t more)
{
	if (!ptw_heap_is_ours()) {
		static void *(*next)(intptr_t);
		if (!next)
			*(void **)&next = dlsym(RTLD_NEXT, "sbrk");
		void *before = next(more);
		if (more > 0 && before != (void *)-1)
			ptw_early_add((uint64_t)before, (uint64_t)more);
		return before;
	}
	ptw_lock(&ptw_shared->break_lock);
	uint64_t before = beginning() ? ptw_shared->break_now : 0;
	bool done = before && (more == 0 || set(before + (uint64_t)more));
	ptw_unlock(&ptw_shared->break_lock);
	if (!done)
		errno = ENOMEM;
	return done ? (void *)before : (void *)-1;
}
