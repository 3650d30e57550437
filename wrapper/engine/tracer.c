/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See tracer.h. */
#include "tracer.h"

enum { STATUS = 2048, PATH = 64 };

static const HChar field[] = "\nTracerPid:\t";

/* 0: nobody does. */
static ULong tracer(void)
{
   HChar status[STATUS];
   const HChar *found;
   SysRes file = VG_(open)("/proc/thread-self/status", VKI_O_RDONLY | PT_O_CLOEXEC, 0);
   Int size;

   if (sr_isError(file))
      return 0;
   size = VG_(read)((Int)sr_Res(file), status, sizeof status - 1);
   VG_(close)((Int)sr_Res(file));
   status[size > 0 ? size : 0] = '\0';
   found = VG_(strstr)(status, field);
   return found == NULL ? 0 : VG_(strtoull10)(found + sizeof field - 1, NULL);
}

Bool tracer_is_simulated(void)
{
   struct vg_stat its, ours;
   HChar path[PATH];
   ULong pid = tracer();

   if (pid == 0)
      return False;
   VG_(snprintf)(path, sizeof path, "/proc/%llu/exe", pid);
   return !sr_isError(VG_(stat)(path, &its)) && !sr_isError(VG_(stat)("/proc/thread-self/exe", &ours))
          && its.dev == ours.dev && its.ino == ours.ino;
}
