/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's reading of limits at its start (-Wl,--wrap=…): how large the first thread's stack may get.
 * Valgrind has 16 MB at most, whatever the limit is; programs that recurse deeply set a higher one, or none.
 */
#include "vg_core.h"

enum { VALGRINDS_MOST = 16 << 20, OUR_MOST = 1 << 30 }; /* addresses are kept for it, no memory */

extern Word VG_(clo_main_stacksize); /* m_options: 0 where the limit counts */

extern Int __real_vgPlain_getrlimit(Int resource, struct vki_rlimit *limit);
extern Int __wrap_vgPlain_getrlimit(Int resource, struct vki_rlimit *limit);

Int __wrap_vgPlain_getrlimit(Int resource, struct vki_rlimit *limit)
{
   const Int error = __real_vgPlain_getrlimit(resource, limit);

   if (error == 0 && resource == VKI_RLIMIT_STACK && VG_(clo_main_stacksize) == 0 && limit->rlim_cur > VALGRINDS_MOST)
      VG_(clo_main_stacksize) = limit->rlim_cur < OUR_MOST ? (Word)limit->rlim_cur : OUR_MOST;
   return error;
}
