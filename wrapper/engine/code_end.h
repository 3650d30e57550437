/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Code at the end of memory that can be read. VEX looks at bytes behind the instruction it translates, and goes on over
 * the end of a page: where the next one cannot be read, it would be Valgrind itself that faults. Such a block is
 * translated from a copy, and ends with the last instruction that lies before the end; the next one begins a block of its
 * own, and faults where a processor would. Runs under the big lock.
 */
#ifndef PTSOFT_CODE_END_H
#define PTSOFT_CODE_END_H

#include "vg_core.h"

enum { LONGEST_BLOCK = 2048 /* bytes: 100 instructions, the most that VEX takes, of 15 */ };

/* How many bytes of a block that begins at `addr` can be read, at most LONGEST_BLOCK. */
SizeT code_end_readable(Addr addr);

/* Copy them to bytes[LONGEST_BLOCK], with nops behind. */
void code_end_copy(UChar *bytes, Addr addr, SizeT readable);

#endif
