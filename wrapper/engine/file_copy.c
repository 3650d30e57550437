/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See file_copy.h. A copy that did not become whole is recognised by its size. */
#include "file_copy.h"
#include "output.h"

#define COPY_MAX (512ULL << 20) /* larger files are left to the supervisor */

/* Files below these do not come and go while a program runs. */
static const HChar *const installed[] = {
   "/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/opt/", "/nix/", "/gnu/", "/snap/",
};

static Bool is_installed(const HChar *path)
{
   UInt i;

   for (i = 0; i < sizeof installed / sizeof installed[0]; i++)
      if (VG_(strncmp)(path, installed[i], VG_(strlen)(installed[i])) == 0)
         return True;
   return False;
}

static void copy(Int from, Int to, ULong size)
{
   while (size > 0) {
      SysRes done = VG_(do_syscall)(__NR_sendfile, (UWord)to, (UWord)from, 0, size > (1 << 30) ? 1 << 30 : size,
                                    0, 0, 0, 0);

      if (sr_isError(done) || sr_Res(done) == 0)
         return;
      size -= sr_Res(done);
   }
}

void file_copy_keep(const HChar *path, const struct vg_stat *stat, ULong mtime_ns)
{
   HChar name[OUTPUT_NAME];
   struct vg_stat opened;
   SysRes from;
   Int to;

   if (path == NULL || is_installed(path) || stat->size <= 0 || (ULong)stat->size > COPY_MAX
       || !output_fits((ULong)stat->size))
      return;
   VG_(snprintf)(name, sizeof name, "F%llx.%llx.%llx.%llx", stat->dev, stat->ino, mtime_ns, (ULong)stat->size);
   to = output_open(name, VKI_O_CREAT | VKI_O_EXCL | VKI_O_WRONLY);
   if (to < 0)
      return; /* it is there, or there is no room: then the supervisor's own copy has to do */
   from = VG_(open)(path, VKI_O_RDONLY | PT_O_CLOEXEC | PT_O_NONBLOCK, 0);
   if (!sr_isError(from)) {
      if (VG_(fstat)((Int)sr_Res(from), &opened) == 0 && opened.dev == stat->dev && opened.ino == stat->ino)
         copy((Int)sr_Res(from), to, (ULong)stat->size);
      VG_(close)((Int)sr_Res(from));
   }
   VG_(close)(to);
}
