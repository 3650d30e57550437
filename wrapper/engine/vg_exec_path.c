/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's handlers of exec (-Wl,--wrap=…): the path that a program executes is replaced where it
 * would mean another file (exec_file.h).
 *
 * Valgrind takes a path from the program's memory only: the new one lies in a page that is mapped for it, until the
 * exec has failed. Where none can be had, the path stays.
 */
#include "vg_core.h"
#include "exec_file.h"

enum { EMPTY_PATH = 0x1000 /* AT_EMPTY_PATH */ };

/* m_aspacemgr */
extern SysRes VG_(am_mmap_anon_float_client)(SizeT length, Int prot);
extern SysRes VG_(am_munmap_client)(Bool *need_discard, Addr start, SizeT length);

/* The program's text at an address, if it can be read up to its end. */
static const HChar *text_at(UWord address)
{
   Addr at;

   for (at = address; at - address < EXEC_PATH_MAX; at++)
      if (!VG_(am_is_valid_for_client)(at, 1, VKI_PROT_READ))
         return NULL;
      else if (*(const HChar *)at == '\0')
         return (const HChar *)address;
   return NULL;
}

/* Where the program finds the name; 0: there is no room. */
static UWord give(const HChar *name)
{
   SysRes page = VG_(am_mmap_anon_float_client)(EXEC_PATH_MAX, VKI_PROT_READ | VKI_PROT_WRITE);

   if (sr_isError(page))
      return 0;
   VG_(strcpy)((HChar *)sr_Res(page), name);
   return sr_Res(page);
}

/* Valgrind comes back from an exec that failed. */
static void take_back(UWord given)
{
   Bool unused;

   if (given != 0)
      (void)VG_(am_munmap_client)(&unused, given, EXEC_PATH_MAX);
}

VG_BEFORE(generic_sys_execve)
{
   const HChar *path = text_at(args->arg1);
   HChar name[EXEC_PATH_MAX];
   UWord given = path != NULL && exec_file_rename(path, name) ? give(name) : 0;

   if (given != 0)
      args->arg1 = given;
   __real_vgSysWrap_generic_sys_execve_before(tid, layout, args, status, flags);
   take_back(given);
}

VG_BEFORE(linux_sys_execveat)
{
   const HChar *path = text_at(args->arg2);
   HChar name[EXEC_PATH_MAX];
   UWord given = 0;

   if (path != NULL && path[0] == '\0' && (args->arg5 & EMPTY_PATH)) {
      if (exec_file_of((Int)args->arg1, name))
         given = give(name);
   } else if (path != NULL && exec_file_rename(path, name))
      given = give(name);
   if (given != 0) {
      args->arg2 = given;
      args->arg5 = 0;
   }
   __real_vgSysWrap_linux_sys_execveat_before(tid, layout, args, status, flags);
   take_back(given);
}
