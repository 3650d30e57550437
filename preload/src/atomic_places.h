/* SPDX-License-Identifier: MIT */
/*
 * Process mode, private view: memory that atomic instructions change, found before they run. Where an instruction names
 * its memory by itself (a variable of the executable or of a library that is loaded at the start), the page can be
 * passed through before any thread has a copy of it. Where its memory depends on registers, it is met when it faults.
 */
#ifndef PTW_ATOMIC_PLACES_H
#define PTW_ATOMIC_PLACES_H

#include "sys.h"

#include <stdbool.h>

enum { PTW_ATOMIC_PLACES = 256 }; /* pages; others are met when an instruction faults */

/* In the first process, when the program's data is shared and before anything is opened. */
PTW_HIDDEN void ptw_atomic_places_init(void);

/* One instruction, and what it changes, in that page. Signal-safe. */
PTW_HIDDEN bool ptw_atomic_places_find(uint32_t page, uint64_t *ret_address, uint64_t *ret_code);

#endif
