/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's temporary files (-Wl,--wrap=…), which hold what the program reads as its command line
 * and auxiliary vector: memory of this process is taken for them. Where a file would lie (TMPDIR, /tmp) the program may
 * not write, or there is no such folder, and Valgrind ended it.
 */
#include "vg_core.h"
#include "output.h"
#include "pub_tool_xarray.h"

enum { MFD_CLOEXEC_ = 1, AUXILIARY_VECTOR = 1024 };

static SizeT command_line(void)
{
   SizeT size = VG_(strlen)(VG_(args_the_exename)) + 1;
   Word i;

   for (i = 0; i < VG_(sizeXA)(VG_(args_for_client)); i++)
      size += VG_(strlen)(*(HChar **)VG_(indexXA)(VG_(args_for_client), i)) + 1;
   return size;
}

/* Valgrind asks for the name only to remove it: there is none. Returns a descriptor, or -1. */
extern Int __wrap_vgPlain_mkstemp(const HChar *part_of_name, HChar *full_name);

Int __wrap_vgPlain_mkstemp(const HChar *part_of_name, HChar *full_name)
{
   Int fd;

   full_name[0] = '\0';
   if (output_fits(command_line() + AUXILIARY_VECTOR))
      fd = vg_call(__NR_memfd_create, (UWord)part_of_name, MFD_CLOEXEC_, 0, 0);
   else /* the program's limit of file size holds for that, too: SIGXFSZ would end it */
      fd = vg_call(__NR_open, (UWord)"/dev/null", VKI_O_RDWR | PT_O_CLOEXEC, 0, 0);
   return fd < 0 ? -1 : VG_(safe_fd)(fd);
}

extern Int __real_vgPlain_unlink(const HChar *name);
extern Int __wrap_vgPlain_unlink(const HChar *name);

Int __wrap_vgPlain_unlink(const HChar *name)
{
   return name[0] == '\0' ? 0 : __real_vgPlain_unlink(name);
}
