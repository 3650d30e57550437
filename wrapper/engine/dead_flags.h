/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Flags that nobody will read: VEX stores at a block's end what the flags can be computed from, as it cannot know
 * where the program goes on. Mostly that begins with an instruction that sets them all anew.
 */
#ifndef PTSOFT_DEAD_FLAGS_H
#define PTSOFT_DEAD_FLAGS_H

#include <stdint.h>

enum flag_effect {
   FLAGS_ANYTHING,  /* not known: may read flags, may fault, may go elsewhere */
   FLAGS_KEPT,      /* no flag is read or written */
   FLAGS_SET,       /* no flag is read, and all arithmetic ones are written */
};

/* What the instruction at `bytes`, of which 15 can be read, does to the arithmetic flags; its bytes in *size unless that
   is not known. */
enum flag_effect flag_effect_of(const uint8_t *bytes, unsigned *size);

/* True when the code at `ip` sets all arithmetic flags before it reads any, may fault, or leaves the page of `from`.
   Looks at no byte outside that page, which can be read: when code is replaced there, translations of all of it end. */
int dead_flags_at(uint64_t ip, uint64_t from);

#endif
