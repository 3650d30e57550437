/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Leaves out register writes that nobody can see: generated code is bound by its stores.
 *
 * VEX keeps the flags as an operation and up to three values that they are computed from. It writes a zero for each
 * value that the operation has no use for; whatever stands there is as good. And before every instruction it writes
 * rip, for a fault to find: where no instruction up to the next write of rip, or the end of the block (which sets it
 * too, as every exit does), can fault, that is in vain. The same holds for flags that are dead at the block's end.
 */
#ifndef PTSOFT_UNSEEN_PUTS_H
#define PTSOFT_UNSEEN_PUTS_H

#include "vg_core.h"

/* Makes no-operations of such writes in a flat, optimised block. `flags_dead`: nobody reads the arithmetic flags, and
   nothing faults, until they are set anew, wherever the block is left without a fault. */
void unseen_puts_remove(IRSB *block, Bool flags_dead);

#endif
