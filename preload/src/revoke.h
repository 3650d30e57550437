/* SPDX-License-Identifier: MIT */
/*
 * Process mode: taking open pages away from every thread. What the program may do with memory changes for all its
 * threads at once (mprotect, munmap, a mapping over another); each has its own page protections.
 *
 * Who changes it says so in shared memory, and signals those threads that have such a page open. They close it in the
 * handler, or at their next boundary if that comes first: who learns of the change by synchronisation finds it done.
 *
 * Signal-safe.
 */
#ifndef PTW_REVOKE_H
#define PTW_REVOKE_H

#include "slots.h"

struct ptw_revoked {
	uint32_t lock;
	uint32_t zero;
	uint64_t count; /* ever */
	struct { uint32_t page, pages; } range[1024];
};

#define ptw_revoked_ranges ((struct ptw_revoked *)PTW_META_REVOKED)
_Static_assert(sizeof(struct ptw_revoked) <= PTW_META_OPEN_HEADS - PTW_META_REVOKED, "fits its place");

/* Ranges that this process has closed. */
extern PTW_HIDDEN uint64_t ptw_revoked_seen;

/* Close `pages` pages here, and have the others close them. */
PTW_HIDDEN void ptw_revoke(uint32_t page, uint32_t pages);

/* Close what others took away since. */
PTW_HIDDEN void ptw_revoke_catch_up(void);

/* A new process: what was taken away until now is not open in it. */
PTW_HIDDEN void ptw_revoke_begin(void);

static inline bool ptw_revoke_behind(void)
{
	return __atomic_load_n(&ptw_revoked_ranges->count, __ATOMIC_ACQUIRE) != ptw_revoked_seen;
}

#endif
