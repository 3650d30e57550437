/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's making of a handler's frame (-Wl,--wrap=…): what a handler blocks that was set with
 * SA_NODEFER. The kernel blocks its sa_mask all the same, and lets only the signal itself come again (signal(7),
 * kernel/signal.c: signal_delivered); Valgrind blocks nothing. Garbage collectors stop threads that way and look (SBCL).
 *
 * Valgrind sets the mask after the frame is made, so that what is missing is blocked when the thread goes on: before the
 * handler's first instruction.
 */
#include "masks.h"

extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t *wanted, vki_sigaction_fromK_t *before);

extern void __real_vgPlain_sigframe_create(ThreadId tid, Bool on_altstack, Addr top, const vki_siginfo_t *info,
                                           const struct vki_ucontext *context, void *handler, UInt flags,
                                           const vki_sigset_t *mask, void *restorer);
extern void __wrap_vgPlain_sigframe_create(ThreadId tid, Bool on_altstack, Addr top, const vki_siginfo_t *info,
                                           const struct vki_ucontext *context, void *handler, UInt flags,
                                           const vki_sigset_t *mask, void *restorer);

static vki_sigset_t missing[PT_THREADS]; /* by thread */

Bool masks_missing;

void __wrap_vgPlain_sigframe_create(ThreadId tid, Bool on_altstack, Addr top, const vki_siginfo_t *info,
                                    const struct vki_ucontext *context, void *handler, UInt flags,
                                    const vki_sigset_t *mask, void *restorer)
{
   vki_sigaction_fromK_t action;

   if (flags & VKI_SA_NODEFER && tid < PT_THREADS && !sr_isError(VG_(do_sys_sigaction)(info->si_signo, NULL, &action))) {
      missing[tid].sig[0] |= action.sa_mask.sig[0];
      masks_missing = True;
   }
   __real_vgPlain_sigframe_create(tid, on_altstack, top, info, context, handler, flags, mask, restorer);
}

void masks_complete(ThreadId tid)
{
   if (tid >= PT_THREADS || missing[tid].sig[0] == 0)
      return;
   (void)VG_(do_sys_sigprocmask)(tid, VKI_SIG_BLOCK, &missing[tid], NULL);
   missing[tid].sig[0] = 0;
}
