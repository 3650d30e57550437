/* SPDX-License-Identifier: MIT */
/*
 * What the program maps for itself before process mode begins: constructors of libraries do, with allocators that are
 * the program's own (jemalloc, tcmalloc and others, linked into it).
 *
 * Only where an engine simulates the program is this asked for: among what is mapped then is the engine's own, and the
 * kernel does not say what is whose. Any thread, but not for signal handlers.
 */
#ifndef PTW_EARLY_H
#define PTW_EARLY_H

#include "sys.h"

#include <stdbool.h>
#include <stdint.h>

enum { PTW_EARLY = 256 };

struct ptw_early {
	uint64_t start, end;
};

/* A mapping that no other process has, or a piece of the break. */
PTW_HIDDEN void ptw_early_add(uint64_t start, uint64_t size);

/* It is there no longer. */
PTW_HIDDEN void ptw_early_cut(uint64_t start, uint64_t size);

/* Nobody will ask: nothing is noted from now on. */
PTW_HIDDEN void ptw_early_end(void);

/* How many there are. They do not overlap. */
PTW_HIDDEN uint32_t ptw_early_count(void);

PTW_HIDDEN struct ptw_early ptw_early_at(uint32_t i);

/* Were there more than PTW_EARLY at once? */
PTW_HIDDEN bool ptw_early_lost(void);

#endif
