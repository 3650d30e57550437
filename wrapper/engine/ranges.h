/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A set of address ranges, sorted, that do not overlap. Lookups are binary searches. */
#ifndef PTSOFT_RANGES_H
#define PTSOFT_RANGES_H

#include "vg_core.h"

struct range {
   Addr start, end;  /* end: first byte behind it */
   UWord tag;
};

struct ranges {
   struct range *items;
   UInt count, room;
};

/* The range with `addr` in it, or NULL. Valid until the set changes. */
const struct range *ranges_find(const struct ranges *set, Addr addr);

/* True when something of [start, end) is in the set. */
Bool ranges_overlap(const struct ranges *set, Addr start, Addr end);

/* Put [start, end) in, over whatever was there. */
void ranges_put(struct ranges *set, Addr start, Addr end, UWord tag);

/* Take [start, end) out. True: something of it was in the set. */
Bool ranges_cut(struct ranges *set, Addr start, Addr end);

#endif
