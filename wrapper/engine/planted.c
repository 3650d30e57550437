/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See planted.h. A breakpoint is one byte, 0xcc, over the first one of an instruction (Linux: kernel/events/uprobes.c). */
#include "planted.h"
#include "code_map.h"

enum { PAGE = 4096, BREAKPOINT = 0xcc, LONGEST = 2048 /* block: 100 instructions, the most that VEX takes, of 15 bytes */ };

static Int root_fd = -1;
static Bool suspected;           /* the block that is being translated */
static Addr copied;              /* where the bytes below are; 0: nowhere */
static SizeT copied_size;
static UChar copy[LONGEST], original[LONGEST];

void planted_init(void)
{
   Int fd = vg_call(__NR_openat, (UWord)VKI_AT_FDCWD, (UWord)"/", VKI_O_RDONLY | PT_O_DIRECTORY | PT_O_CLOEXEC, 0);

   root_fd = fd < 0 ? -1 : VG_(safe_fd)(fd);
}

void planted_suspect(void)
{
   suspected = True;
}

/* How many bytes of a block that begins at `addr` can be read, at most LONGEST. */
static SizeT readable(Addr addr)
{
   Addr end = (addr & ~(Addr)(PAGE - 1)) + PAGE;

   while (end < addr + LONGEST && VG_(am_is_valid_for_client)(end, PAGE, VKI_PROT_READ))
      end += PAGE;
   return end < addr + LONGEST ? end - addr : LONGEST;
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

const UChar *planted_cleaned(Addr addr)
{
   const NSegment *segment = suspected ? VG_(am_find_nsegment)(addr) : NULL;

   if (segment == NULL || code_map_volatile(addr))
      return NULL;
   copied_size = readable(addr);
   VG_(memset)(copy, 0, sizeof copy);
   VG_(memcpy)(copy, (const void *)addr, copied_size);
   if (!clean(segment, addr, copied_size))
      return NULL;
   copied = addr;
   return copy;
}

void planted_done(void)
{
   suspected = False;
   copied = 0;
}

const UChar *planted_code(Addr addr)
{
   if (copied != 0 && addr >= copied && addr - copied < copied_size)
      return copy + (addr - copied);
   return (const UChar *)addr;
}
