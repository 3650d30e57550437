/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See ranges.h. Memory is Valgrind's; sets live as long as the process. */
#include "ranges.h"

/* Index of the first range that ends behind `addr`. */
static UInt first_behind(const struct ranges *set, Addr addr)
{
   UInt low = 0, high = set->count;

   while (low < high) {
      UInt middle = low + (high - low) / 2;

      if (set->items[middle].end > addr)
         high = middle;
      else
         low = middle + 1;
   }
   return low;
}

const struct range *ranges_find(const struct ranges *set, Addr addr)
{
   UInt at = first_behind(set, addr);

   return at < set->count && set->items[at].start <= addr ? &set->items[at] : NULL;
}

Bool ranges_overlap(const struct ranges *set, Addr start, Addr end)
{
   UInt at = first_behind(set, start);

   return at < set->count && set->items[at].start < end;
}

static void insert(struct ranges *set, UInt at, struct range item)
{
   if (set->count == set->room) {
      set->room = set->room ? 2 * set->room : 64;
      set->items = VG_(realloc)("ptsoft.ranges", set->items, set->room * sizeof *set->items);
   }
   VG_(memmove)(set->items + at + 1, set->items + at, (set->count - at) * sizeof *set->items);
   set->items[at] = item;
   set->count++;
}

Bool ranges_cut(struct ranges *set, Addr start, Addr end)
{
   UInt at = first_behind(set, start);
   Bool found = False;

   while (at < set->count && set->items[at].start < end) {
      struct range *item = &set->items[at];

      found = True;
      if (item->start < start && item->end > end) { /* a hole in the middle */
         struct range right = { end, item->end, item->tag };

         item->end = start;
         insert(set, at + 1, right);
         return True;
      }
      if (item->start < start) {
         item->end = start;
         at++;
      } else if (item->end > end) {
         item->start = end;
      } else {
         set->count--;
         VG_(memmove)(item, item + 1, (set->count - at) * sizeof *item);
      }
   }
   return found;
}

void ranges_put(struct ranges *set, Addr start, Addr end, UWord tag)
{
   struct range item = { start, end, tag };

   if (start >= end)
      return;
   (void)ranges_cut(set, start, end);
   insert(set, first_behind(set, start), item);
}
