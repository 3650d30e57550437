/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See code_map.h. Runs under the big lock. */
#include "code_map.h"
#include "anon_code.h"
#include "file_copy.h"
#include "ranges.h"
#include "sideband.h"

/* What an executed range is. */
enum tag { IN_FILE = 0, NOT_IN_FILE = 1 };

static struct ranges executed;   /* by the mapping they were in */
static struct ranges writable;   /* file mappings that are writable or were */
static UInt epoch;

UInt code_map_epoch(void)
{
   return epoch;
}

UInt code_map_next_epoch(void)
{
   return ++epoch;
}

/* The file that a mapping was made of is still what its name names. */
static Bool found_under_name(const NSegment *segment, const HChar *path, struct vg_stat *stat)
{
   return path != NULL && path[0] == '/' && !sr_isError(VG_(stat)(path, stat)) && VKI_S_ISREG(stat->mode)
          && stat->dev == segment->dev && stat->ino == segment->ino;
}

static void record_file(const NSegment *segment, const HChar *path, const struct vg_stat *stat)
{
   ULong mtime = stat->mtime * 1000000000ULL + stat->mtime_nsec;

   sideband_put(PTSOFT_MAP, (struct sideband_values){ {
      segment->start, segment->end + 1 - segment->start, (ULong)segment->offset, segment->dev, segment->ino,
      mtime, (ULong)stat->size, epoch } }, path);
   file_copy_keep(path, stat, mtime);
}

static void record_segment(const NSegment *segment)
{
   const HChar *path = segment->kind == SkFileC ? VG_(am_get_filename)(segment) : NULL;
   struct vg_stat stat;
   Bool in_file = found_under_name(segment, path, &stat);

   if (in_file)
      record_file(segment, path, &stat);
   ranges_put(&executed, segment->start, segment->end + 1, in_file ? IN_FILE : NOT_IN_FILE);
}

/* A mapping in the book whose code is not safe in its file. */
static Bool kept_by_bytes(const struct range *mapping, const NSegment *segment, Addr addr)
{
   return mapping->tag == NOT_IN_FILE || segment->hasW || ranges_find(&writable, addr) != NULL;
}

void code_map_translated(Addr addr, SizeT size)
{
   const NSegment *segment = VG_(am_find_nsegment)(addr);
   const struct range *mapping = ranges_find(&executed, addr);

   if (segment == NULL)
      return;
   if (mapping == NULL) {
      record_segment(segment);
      mapping = ranges_find(&executed, addr);
   }
   if (kept_by_bytes(mapping, segment, addr))
      anon_code_translated(addr, (const UChar *)addr, size);
   else if (addr + size > mapping->end) /* the block runs on into another mapping */
      code_map_translated(mapping->end, addr + size - mapping->end);
}

Bool code_map_volatile(Addr addr)
{
   const NSegment *segment = VG_(am_find_nsegment)(addr);
   const struct range *mapping = ranges_find(&executed, addr);

   if (segment == NULL)
      return False;
   if (mapping == NULL) {
      record_segment(segment);
      mapping = ranges_find(&executed, addr);
   }
   return kept_by_bytes(mapping, segment, addr);
}

void code_map_gone(Addr addr, SizeT size)
{
   Bool in_files = ranges_cut(&executed, addr, addr + size);
   Bool in_memory = anon_code_gone(addr, size);

   (void)ranges_cut(&writable, addr, addr + size);
   if (in_files || in_memory) {
      code_map_next_epoch();
      sideband_put(PTSOFT_UNMAP, (struct sideband_values){ { addr, size, epoch } }, NULL);
   }
}

static void note_writable(Addr addr, SizeT size)
{
   const NSegment *segment = VG_(am_find_nsegment)(addr);

   if (segment == NULL || segment->kind != SkFileC)
      return;
   /* What ran here until now was the file's code; what runs from now on is checked, stored, and may differ. */
   if (ranges_overlap(&executed, addr, addr + size) && !ranges_overlap(&writable, addr, addr + size)) {
      code_map_next_epoch();
      VG_(discard_translations)(addr, size, "ptsoft: code became writable");
   }
   ranges_put(&writable, addr, addr + size, 0);
}

void code_map_new(Addr addr, SizeT size, Bool readable, Bool can_write, Bool executable, ULong handle)
{
   (void)readable;
   (void)executable;
   (void)handle;
   code_map_gone(addr, size);
   if (can_write)
      note_writable(addr, size);
}

void code_map_protected(Addr addr, SizeT size, Bool readable, Bool can_write, Bool executable)
{
   (void)readable;
   (void)executable;
   if (can_write)
      note_writable(addr, size);
}

void code_map_forked(void)
{
   UInt i;

   epoch = 0;
   sideband_hold();
   for (i = 0; i < executed.count; i++) {
      const struct range *mapping = &executed.items[i];
      const NSegment *segment = VG_(am_find_nsegment)(mapping->start);
      struct vg_stat stat;
      const HChar *path;

      if (segment == NULL || mapping->tag != IN_FILE)
         continue;
      path = VG_(am_get_filename)(segment);
      if (!found_under_name(segment, path, &stat))
         VG_(memset)(&stat, 0, sizeof stat); /* removed meanwhile: whoever reads this knows it from the parent */
      record_file(segment, path, &stat);
   }
   anon_code_forked();
   sideband_release();
}
