/* SPDX-License-Identifier: MIT */
/*
 * Process mode: mappings that another of the program's processes made behind our back: libraries it loaded, locale
 * archives, whatever the C library maps by itself. When this process first touches such an address, it takes the
 * mapping over: files are mapped from the same file, what may have been written is copied (from then on each has its
 * own, until who made it shares it: what was written to the copy is lost then).
 *
 * Signal-safe.
 */
#ifndef PTW_ADOPT_H
#define PTW_ADOPT_H

#include "sys.h"

#include <stdbool.h>

/* Is the address mapped now? */
PTW_HIDDEN bool ptw_adopt(uint64_t address);

#endif
