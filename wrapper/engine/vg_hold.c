/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See hold.h. The signals stay pending in the kernel, which also forgets them when SIGCONT comes: they are blocked in
 * system calls and asked for by nobody (vg_exec.c). They stay blocked over the exec, which lets the parent go; Valgrind
 * sets the mask before it (-Wl,--wrap=…), and the engine of the new program unblocks them before Valgrind looks.
 */
#include "hold.h"
#include "client_env.h"
#include "process.h"
#include "stop.h"

#include "pub_tool_libcsignal.h"

enum { MASK_SIZE = 8, UNBLOCK = 1 };

static Bool holds;
static ULong passed_on; /* signals that the program executed next lets go */

void hold_in_child(Bool parent_waits)
{
   holds = parent_waits;
   passed_on = 0;
}

const vki_sigset_t *hold_mask(const vki_sigset_t *mask, vki_sigset_t *room)
{
   if (!holds)
      return mask;
   room->sig[0] = mask->sig[0] | stop_left();
   return room;
}

const vki_sigset_t *hold_back(const vki_sigset_t *set, vki_sigset_t *room)
{
   if (!holds)
      return set;
   room->sig[0] = set->sig[0] & ~stop_left();
   return room;
}

Bool hold_pass_on(HChar text[HOLD_TEXT])
{
   vki_sigset_t blocked;

   passed_on = 0;
   if (!holds || sr_isError(VG_(do_sys_sigprocmask)(VG_(get_running_tid)(), 0, NULL, &blocked)))
      return False;
   passed_on = stop_left() & ~(ULong)blocked.sig[0]; /* what the program blocks is blocked in the next one */
   VG_(snprintf)(text, HOLD_TEXT, "%llu", passed_on);
   return passed_on != 0;
}

extern Int __real_vgPlain_sigprocmask(Int how, const vki_sigset_t *set, vki_sigset_t *before);
extern Int __wrap_vgPlain_sigprocmask(Int how, const vki_sigset_t *set, vki_sigset_t *before);

Int __wrap_vgPlain_sigprocmask(Int how, const vki_sigset_t *set, vki_sigset_t *before)
{
   vki_sigset_t held;

   if (passed_on == 0 || how != VKI_SIG_SETMASK || !process_is_execing())
      return __real_vgPlain_sigprocmask(how, set, before);
   held.sig[0] = set->sig[0] | passed_on;
   return __real_vgPlain_sigprocmask(how, &held, before);
}

extern void __real_vgPlain_sigstartup_actions(void);
extern void __wrap_vgPlain_sigstartup_actions(void);

void __wrap_vgPlain_sigstartup_actions(void)
{
   const HChar *inherited = VG_(getenv)(CLIENT_ENV_HELD);
   const ULong held = inherited != NULL ? (ULong)VG_(strtoll10)(inherited, NULL) : 0;

   if (held != 0)
      (void)vg_call(__NR_rt_sigprocmask, UNBLOCK, (UWord)&held, 0, MASK_SIZE); /* a signal that waited stops it here */
   __real_vgPlain_sigstartup_actions();
}
