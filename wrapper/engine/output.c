/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See output.h for what this guarantees. */
#include "output.h"

static Int folder_fd = -1;

static Bool is_folder(Int fd)
{
   struct vg_stat stat;

   return VG_(fstat)(fd, &stat) == 0 && VKI_S_ISDIR(stat.mode);
}

Bool output_init(const HChar *folder, Int inherited)
{
   Int fd = inherited;

   if (fd < 0 || !is_folder(fd))
      fd = vg_call(__NR_openat, (UWord)VKI_AT_FDCWD, (UWord)folder, VKI_O_RDONLY | PT_O_DIRECTORY, 0);
   if (fd < 0)
      return False;
   folder_fd = VG_(safe_fd)(fd);
   return folder_fd >= 0;
}

Int output_pass_on(void)
{
   if (folder_fd >= 0)
      VG_(fcntl)(folder_fd, VKI_F_SETFD, 0);
   return folder_fd;
}

Int output_open(const HChar *name, Int flags)
{
   return vg_call(__NR_openat, (UWord)folder_fd, (UWord)name, (UWord)(flags | PT_O_CLOEXEC | PT_O_NOFOLLOW), 0600);
}

void output_remove(const HChar *name)
{
   (void)vg_call(__NR_unlinkat, (UWord)folder_fd, (UWord)name, 0, 0);
}

void output_give(const HChar *name, UInt user)
{
   enum { KEEP_GROUP = -1, SYMLINK_NOFOLLOW = 0x100 };

   (void)VG_(do_syscall)(__NR_fchownat, (UWord)folder_fd, (UWord)name, user, (UWord)KEEP_GROUP, SYMLINK_NOFOLLOW, 0, 0, 0);
}

Bool output_fits(ULong end)
{
   struct { ULong soft, hard; } limit; /* of the process: the program's own */

   return vg_call(__NR_getrlimit, PT_RLIMIT_FSIZE, (UWord)&limit, 0, 0) != 0 || end <= limit.soft;
}

static Bool write_at(Int fd, const UChar *bytes, SizeT size, ULong at)
{
   if (!output_fits(at + size))
      return False;
   while (size > 0) {
      Int done = vg_call(__NR_pwrite64, (UWord)fd, (UWord)bytes, size > (1 << 30) ? 1 << 30 : size, at);

      if (done == -VKI_EINTR)
         continue;
      if (done <= 0)
         return False;
      bytes += done;
      size -= (SizeT)done;
      at += (ULong)done;
   }
   return True;
}

Bool output_append(const HChar *name, ULong at, const void *bytes, SizeT size)
{
   Int fd = output_open(name, VKI_O_CREAT | VKI_O_WRONLY);
   Bool stored;

   if (fd < 0)
      return False;
   stored = write_at(fd, bytes, size, at);
   VG_(close)(fd);
   return stored;
}

/* The kernel minds the limit where room makes a file larger; of what is written, wherever that is. */
static Bool may_allocate(Int fd, ULong end)
{
   struct vg_stat stat;

   return output_fits(end) || (VG_(fstat)(fd, &stat) == 0 && (ULong)stat.size >= end);
}

Bool output_allocate(Int fd, ULong offset, SizeT size)
{
   static const UChar zeros[4096];
   Int done;

   if (!may_allocate(fd, offset + size))
      return False;
   do
      done = vg_call(__NR_fallocate, (UWord)fd, 0, offset, size);
   while (done == -VKI_EINTR);
   if (done != -PT_EOPNOTSUPP)
      return done == 0;
   for (; size > 0; size -= sizeof zeros, offset += sizeof zeros) /* a file system without fallocate */
      if (!write_at(fd, zeros, sizeof zeros, offset))
         return False;
   return True;
}

Bool window_map(struct window *window, ULong offset, SizeT size)
{
   UInt rights = VKI_PROT_READ | VKI_PROT_WRITE;
   SysRes mapped;
   Int fd;

   tl_assert(window->base == NULL || size == window->size);
   fd = output_open(window->name, VKI_O_CREAT | VKI_O_RDWR);
   if (fd < 0)
      return False;
   if (!output_allocate(fd, offset, size)) {
      VG_(close)(fd);
      return False;
   }
   /* The first window makes a segment in Valgrind's book of the address space; later ones take its place. */
   if (window->base == NULL)
      mapped = VG_(am_shared_mmap_file_float_valgrind)(size, rights, fd, (Off64T)offset);
   else
      mapped = VG_(am_do_mmap_NO_NOTIFY)((Addr)window->base, size, rights, VKI_MAP_SHARED | VKI_MAP_FIXED, fd,
                                         (Off64T)offset);
   VG_(close)(fd);
   if (sr_isError(mapped))
      return False;
   window->base = (UChar *)sr_Res(mapped);
   window->size = size;
   window->offset = offset;
   return True;
}

void window_close(struct window *window, ULong keep)
{
   Int fd;

   if (window->base == NULL)
      return;
   window_forget(window);
   fd = output_open(window->name, VKI_O_WRONLY);
   if (fd >= 0) {
      (void)vg_call(__NR_ftruncate, (UWord)fd, keep, 0, 0);
      VG_(close)(fd);
   }
}

void window_forget(struct window *window)
{
   if (window->base != NULL)
      (void)VG_(am_munmap_valgrind)((Addr)window->base, window->size);
   window->base = NULL;
}
