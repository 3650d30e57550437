/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What signals' handlers block, as they do without the engine: see vg_masks.c. */
#ifndef PTSOFT_MASKS_H
#define PTSOFT_MASKS_H

#include "vg_core.h"

/* Some thread was given to a handler whose mask is not complete (set once, and for all). */
extern Bool masks_missing;

/* The thread goes on. */
void masks_complete(ThreadId tid);

#endif
