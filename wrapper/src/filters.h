/* SPDX-License-Identifier: MIT */
/*
 * The filter rules of loaded programs: replaced as a whole, at any time, without a moment at which part of them holds.
 *
 * Not thread-safe: one set of rules is written at a time. Waits for a grace period of the kernel's (some ms).
 */
#ifndef PTW_FILTERS_H
#define PTW_FILTERS_H

#include <stdint.h>

#include "programs.h"

/* cffi begin */
/* One rule; `accept` and `active` are bits by kind of event, `reject` what is active and not accepted. */
struct ptw_filter_rule {
	uint32_t filter;		/* 0 pid, 1 tid, 2 comm, 3 exe, 4 cmdline */
	uint32_t id;			/* of pid and tid */
	const char *text;		/* of the others; its NULs are part of it */
	uint32_t size;			/* of the text: at most 15 (comm) or 503 */
	uint32_t accept;
	uint32_t active;
};

struct ptw_filter_rules {
	uint32_t kinds;			/* kinds of event that are recorded at all, a bit each */
	uint32_t used;			/* filters that are asked, a bit each */
	uint32_t fallback[5];		/* by filter: kinds that pass where it has no rule */
	uint32_t count;
	const struct ptw_filter_rule *rule;
};
/* cffi end */

/*
 * Replace the rules. A call is judged by the old or the new ones, whole. Returns 0 or a negative errno, and then the
 * old ones hold on: -EINVAL for a text that is too long, -E2BIG for more rules than there is room for.
 */
int ptw_filters_set(struct ptw_programs *programs, const struct ptw_filter_rules *rules);

#endif
