/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Flags that nobody will read: VEX stores at a block's end what the flags can be computed from, as it cannot know
 * where the program goes on. Mostly that begins with an instruction that sets them all anew.
 */
#ifndef PTSOFT_DEAD_FLAGS_H
#define PTSOFT_DEAD_FLAGS_H

#include "vg_core.h"

/* The code at `ip` sets all arithmetic flags before it reads any, may fault, or leaves the page of `from`. Looks at
   no byte outside that page, which can be read: what changes there for one address ends translations of both. */
Bool dead_flags_at(Addr ip, Addr from);

#endif
