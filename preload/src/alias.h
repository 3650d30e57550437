/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the always open view of an address. Synchronisation objects are used through it: they are not the
 * program's data, so their pages neither fault nor count, and the kernel may wait on them at any time.
 *
 * In the private view, what the thread wrote to the object by itself is committed first.
 *
 * Addresses that are not tracked memory are their own alias; a file over the heap (files.h) is none. Signal-safe, takes no lock.
 */
#ifndef PTW_ALIAS_H
#define PTW_ALIAS_H

#include "files.h"
#include "limits.h"
#include "region.h"
#include "segments.h"
#include "untracked.h"
#include "view.h"

static inline void *ptw_alias_of(const void *pointer)
{
	uint64_t address = (uint64_t)pointer;
	bool in_region = ptw_in_region(address);
	if (in_region && __builtin_expect(ptw_limits[(address - PTW_REGION) / PTW_PAGE] == PTW_OVERLAID, 0))
		return (void *)address;
	if (__builtin_expect(ptw_private, 0))
		ptw_view_use(address);
	if (in_region)
		return (void *)(address - PTW_REGION + PTW_ALIAS);
	const struct ptw_segments *all = ptw_segment_table;
	uint32_t count = __atomic_load_n(&all->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++) {
		const struct ptw_segment *segment = &all->segment[i];
		if (address - segment->start < segment->end - segment->start)
			return (void *)(PTW_ALIAS + segment->page * PTW_PAGE + (address - segment->start));
	}
	return address - PTW_FILES < PTW_FILES_SIZE ? ptw_files_alias(address) : (void *)address;
}

/* Do all threads have this object, whose alias is given, though each is a process? Then nobody may wait on it as on a
 * process's own. Not so of what other programs have as well. */
static inline bool ptw_alias_is_shared(const void *object, const void *alias)
{
	return alias != object || ptw_in_region((uint64_t)object) || ptw_untracked_has((uint64_t)object);
}

#endif
