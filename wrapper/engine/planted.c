/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See planted.h. A breakpoint is one byte, 0xcc, over the first one of an instruction (Linux: kernel/events/uprobes.c). */
#include "planted.h"
#include "code_end.h"
#include "code_map.h"

enum { BREAKPOINT = 0xcc };

static Int root_fd = -1;
static Bool suspected;           /* the block that is being translated */
static const UChar *source;      /* what is read in place of the code at `copied`; NULL: nothing */
static Addr copied;
static SizeT copied_size;
static UChar copy[LONGEST_BLOCK], original[LONGEST_BLOCK];

void planted_init(void)
{
   Int fd = vg_call(__NR_openat, (UWord)VKI_AT_FDCWD, (UWord)"/", VKI_O_RDONLY | PT_O_DIRECTORY | PT_O_CLOEXEC, 0);

   root_fd = fd < 0 ? -1 : VG_(safe_fd)(fd);
}

void planted_suspect(void)
{
   suspected = True;
}

/* The file of a mapping, open; negative: it is not to be had. */
static Int open_file(const NSegment *segment)
{
   const HChar *path = segment->kind == SkFileC ? VG_(am_get_filename)(segment) : NULL;
   struct vg_stat stat;
   Int fd;

   if (path == NULL || path[0] != '/')
      return -1;
   fd = vg_call(__NR_openat, (UWord)root_fd, (UWord)(path + 1), VKI_O_RDONLY | PT_O_CLOEXEC | PT_O_NONBLOCK, 0);
   if (fd >= 0 && VG_(fstat)(fd, &stat) == 0 && VKI_S_ISREG(stat.mode) && stat.dev == segment->dev
       && stat.ino == segment->ino)
      return fd;
   if (fd >= 0)
      VG_(close)(fd);
   return -1;
}

/* Put the file's bytes in place of the breakpoints that are not its own. Returns whether there were any. */
static Bool clean(const NSegment *segment, Addr addr, SizeT size)
{
   SizeT inside = segment->end + 1 - addr, i;
   Int fd = open_file(segment), got;
   Bool found = False;

   if (fd < 0)
      return False;
   got = vg_call(__NR_pread64, (UWord)fd, (UWord)original, inside < size ? inside : size,
              (UWord)segment->offset + (addr - segment->start));
   VG_(close)(fd);
   for (i = 0; got > 0 && i < (SizeT)got; i++) {
      if (copy[i] != BREAKPOINT || original[i] == BREAKPOINT)
         continue;
      copy[i] = original[i];
      found = True;
   }
   return found;
}

void planted_read_from(const UChar *bytes, Addr addr, SizeT size)
{
   source = bytes;
   copied = addr;
   copied_size = size;
}

const UChar *planted_cleaned(Addr addr)
{
   const NSegment *segment = suspected ? VG_(am_find_nsegment)(addr) : NULL;
   SizeT readable;

   if (segment == NULL || code_map_volatile(addr))
      return NULL;
   readable = code_end_readable(addr);
   code_end_copy(copy, addr, readable);
   if (!clean(segment, addr, readable))
      return NULL;
   planted_read_from(copy, addr, sizeof copy);
   return copy;
}

void planted_done(void)
{
   suspected = False;
   source = NULL;
}

const UChar *planted_code(Addr addr)
{
   if (source != NULL && addr >= copied && addr - copied < copied_size)
      return source + (addr - copied);
   return (const UChar *)addr;
}
