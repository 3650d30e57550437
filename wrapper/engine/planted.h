/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Breakpoints that the kernel planted in the program's code, for whoever has a uprobe in the same file (perf, bpftrace,
 * ptweave events). A program that is traced so runs them natively; in ours, which reads its code to translate it, each
 * would be a SIGTRAP that nobody expects. Such a block is translated again, from the bytes of its file.
 *
 * Not found: where a file cannot be opened any more (another is under its name, or the program has become a user who may
 * not read it), and in code that is or was writable, which the program itself may have changed. Runs under the big lock.
 */
#ifndef PTSOFT_PLANTED_H
#define PTSOFT_PLANTED_H

#include "vg_core.h"

/* Keep the root folder, which the program may change. */
void planted_init(void);

/* The block that is being translated ends with a breakpoint. */
void planted_suspect(void);

/* A translation of [addr, …) is done: what it was made from is good, or NULL; else bytes to translate in its place, good
   until planted_done. */
const UChar *planted_cleaned(Addr addr);
void planted_done(void);

/* Until then the code of [addr, addr + size) is read from other bytes. */
void planted_read_from(const UChar *bytes, Addr addr, SizeT size);

/* Where the code at `addr` is read from. */
const UChar *planted_code(Addr addr);

#endif
