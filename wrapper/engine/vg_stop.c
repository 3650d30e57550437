/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's signal handlers (-Wl,--wrap=…): signals that stop a program by default (SIGTSTP, SIGTTIN,
 * SIGTTOU). Valgrind takes them with a handler of its own and then does nothing. The kernel is left to act on them where
 * the program does: it knows orphaned process groups, and repeats a call that a stop interrupted.
 *
 * A signal that comes while the program runs code is blocked, and Valgrind asks for it later: stop.h's function is called
 * then. Valgrind checks that its own handlers are in place when it changes them: they are, while it does.
 */
#include "stop.h"

#include "pub_tool_libcsignal.h"

enum { SIGNALS = 64, MASK_SIZE = 8, BLOCK = 0, UNBLOCK = 1 };

extern SysRes __real_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t *wanted,
                                              vki_sigaction_fromK_t *before);
extern SysRes __wrap_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t *wanted,
                                              vki_sigaction_fromK_t *before);

static Bool begun;                               /* Valgrind's handlers are there */
static Bool left[SIGNALS + 1];                   /* to the kernel */
static vki_sigaction_fromK_t valgrinds[SIGNALS + 1];

static Bool stops(Int signal)
{
   return signal == VKI_SIGTSTP || signal == VKI_SIGTTIN || signal == VKI_SIGTTOU;
}

static Bool by_default(Int signal)
{
   vki_sigaction_fromK_t now;

   return !sr_isError(__real_vgPlain_do_sys_sigaction(signal, NULL, &now)) && now.ksa_handler == VKI_SIG_DFL;
}

static void leave(Int signal)
{
   vki_sigaction_toK_t nothing;

   VG_(memset)(&nothing, 0, sizeof nothing); /* SIG_DFL */
   left[signal] = vg_call(__NR_rt_sigaction, (UWord)signal, (UWord)&nothing, (UWord)&valgrinds[signal], MASK_SIZE) == 0;
}

static void take(Int signal)
{
   if (left[signal])
      (void)vg_call(__NR_rt_sigaction, (UWord)signal, (UWord)&valgrinds[signal], 0, MASK_SIZE);
   left[signal] = False;
}

SysRes __wrap_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t *wanted, vki_sigaction_fromK_t *before)
{
   const Bool changes = begun && wanted != NULL && stops(signal);
   SysRes result;

   if (changes)
      take(signal);
   result = __real_vgPlain_do_sys_sigaction(signal, wanted, before);
   if (changes && by_default(signal))
      leave(signal);
   return result;
}

void stop_init(void)
{
   Int signal;

   begun = True;
   for (signal = 1; signal <= SIGNALS; signal++)
      if (stops(signal) && by_default(signal))
         leave(signal);
}

ULong stop_left(void)
{
   ULong mask = 0;
   Int signal;

   for (signal = 1; signal <= SIGNALS; signal++)
      if (left[signal])
         mask |= 1ULL << (signal - 1);
   return mask;
}

Bool stop_instead(Int signal)
{
   const ULong only = 1ULL << (signal - 1);

   if (!stops(signal) || !left[signal] || !by_default(signal))
      return False;
   (void)vg_call(__NR_tgkill, (UWord)VG_(getpid)(), (UWord)VG_(gettid)(), (UWord)signal, 0);
   (void)vg_call(__NR_rt_sigprocmask, UNBLOCK, (UWord)&only, 0, MASK_SIZE); /* it stops here */
   (void)vg_call(__NR_rt_sigprocmask, BLOCK, (UWord)&only, 0, MASK_SIZE);
   return True;
}
