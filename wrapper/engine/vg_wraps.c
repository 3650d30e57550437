/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Small functions linked in front of Valgrind's own (-Wl,--wrap=…): debug information is not read, translations of
 * code that may change check it, code at the end of readable memory is no fault of Valgrind's, others' breakpoints are
 * passed over, register writes are put in order, and the log of system calls learns what the kernel was asked.
 */
#include "vg_core.h"
#include "code_end.h"
#include "code_map.h"
#include "hold.h"
#include "planted.h"
#include "put_order.h"
#include "stream.h"
#include "watch.h"
#include "whole_registers.h"
#include "libvex.h"
#include "libvex_guest_amd64.h"
#include "pub_tool_libcsetjmp.h"

/* Nothing here needs debug information (it names functions in messages, and finds functions that tools replace),
   and reading it costs 100 ms a process. 0: none was found. */
extern ULong __wrap_vgPlain_di_notify_mmap(Addr addr, Bool allow_read, Int fd);

ULong __wrap_vgPlain_di_notify_mmap(Addr addr, Bool allow_read, Int fd)
{
   (void)addr;
   (void)allow_read;
   (void)fd;
   return 0;
}

typedef UInt self_check_fn(void *closure, VexRegisterUpdates *updates, const VexGuestExtents *extents);

static self_check_fn *valgrinds_self_check;

/* True when there may be a division in the code: F6 or F7 with /6 or /7. Finding one too many only costs time. */
static Bool may_divide(const UChar *code, SizeT size)
{
   SizeT i;

   for (i = 0; i + 1 < size; i++)
      if ((code[i] & 0xfe) == 0xf6 && (code[i + 1] & 0x30) == 0x30)
         return True;
   return False;
}

static UInt self_check(void *closure, VexRegisterUpdates *updates, const VexGuestExtents *extents)
{
   UInt wanted = valgrinds_self_check(closure, updates, extents), i;

   if (watch_active()) /* a hit's handler sees them behind each */
      *updates = VexRegUpdAllregsAtEachInsn;
   for (i = 0; i < extents->n_used; i++) {
      if (code_map_volatile(extents->base[i]))
         wanted |= 1u << i;
      /* A handler of a division fault may want every register, and such a fault is no memory access. */
      if (may_divide(planted_code(extents->base[i]), extents->len[i]))
         *updates = VexRegUpdAllregsAtEachInsn;
   }
   return wanted;
}

extern VexControl vex_control;
extern VexTranslateResult __real_LibVEX_Translate(VexTranslateArgs *args);
extern VexTranslateResult __wrap_LibVEX_Translate(VexTranslateArgs *args);

static UChar last_bytes[LONGEST_BLOCK]; /* of readable memory, for the block that is being translated */
static Addr code_end;                   /* where what can be read of it ends */
static Int fitting;                     /* instructions of it that lie before that */
static VG_MINIMAL_JMP_BUF(unreadable);  /* out of the translation of an instruction that cannot be read to its end */

static IRSB *count_fitting(void *closure, IRSB *block, const VexGuestLayout *layout, const VexGuestExtents *extents,
                           const VexArchInfo *arch, IRType guest_word, IRType host_word)
{
   Int i;

   (void)closure, (void)layout, (void)extents, (void)arch, (void)guest_word, (void)host_word;
   for (i = 0; i < block->stmts_used; i++) {
      const IRStmt *statement = block->stmts[i];

      if (statement->tag != Ist_IMark)
         continue;
      if (statement->Ist.IMark.addr + statement->Ist.IMark.len > code_end)
         break;
      fitting++;
   }
   return block;
}

static UInt no_self_check(void *closure, VexRegisterUpdates *updates, const VexGuestExtents *extents)
{
   (void)closure, (void)updates, (void)extents;
   return 0;
}

/* Have the block end with its last instruction that can be read, counted in a translation that is thrown away. Goes back
   to the caller of Valgrind's translation where there is none. */
static void end_in_time(VexTranslateArgs *args)
{
   SizeT readable = code_end_readable(args->guest_bytes_addr);
   VexTranslateArgs trial;

   if (readable == LONGEST_BLOCK)
      return;
   code_end_copy(last_bytes, args->guest_bytes_addr, readable);
   code_end = args->guest_bytes_addr + readable;
   args->guest_bytes = last_bytes;
   planted_read_from(last_bytes, args->guest_bytes_addr, sizeof last_bytes);
   trial = *args;
   trial.instrument1 = count_fitting;
   trial.instrument2 = NULL;
   trial.needs_self_check = no_self_check;
   fitting = 0;
   (void)__real_LibVEX_Translate(&trial);
   if (fitting == 0) {
      planted_done();
      VG_MINIMAL_LONGJMP(unreadable);
   }
   vex_control.guest_max_insns = fitting;
}

VexTranslateResult __wrap_LibVEX_Translate(VexTranslateArgs *args)
{
   const Int most = vex_control.guest_max_insns;
   VexTranslateResult result;
   const UChar *cleaned;

   end_in_time(args);
   valgrinds_self_check = args->needs_self_check;
   args->needs_self_check = self_check;
   result = __real_LibVEX_Translate(args);
   cleaned = planted_cleaned(args->guest_bytes_addr);
   if (cleaned != NULL) {
      args->guest_bytes = cleaned;
      result = __real_LibVEX_Translate(args);
   }
   planted_done();
   vex_control.guest_max_insns = most;
   return result;
}

extern void VG_(synth_fault_mapping)(ThreadId tid, Addr addr);
extern void VG_(synth_fault_perms)(ThreadId tid, Addr addr);
extern Bool __real_vgPlain_translate(ThreadId tid, Addr addr, Bool debugging, Int verbosity, ULong blocks_done,
                                     Bool redirect);
extern Bool __wrap_vgPlain_translate(ThreadId tid, Addr addr, Bool debugging, Int verbosity, ULong blocks_done,
                                     Bool redirect);

/* False: the program gets a signal, as where it jumps to what cannot be executed. */
Bool __wrap_vgPlain_translate(ThreadId tid, Addr addr, Bool debugging, Int verbosity, ULong blocks_done, Bool redirect)
{
   if (VG_MINIMAL_SETJMP(unreadable) == 0)
      return __real_vgPlain_translate(tid, addr, debugging, verbosity, blocks_done, redirect);
   if (VG_(am_find_nsegment)(code_end) == NULL)
      VG_(synth_fault_mapping)(tid, code_end);
   else
      VG_(synth_fault_perms)(tid, code_end);
   return False;
}

/* VEX's optimiser: register writes are made whole and put in order before it. */
typedef IRExpr *spec_fn(const HChar *helper, IRExpr **args, IRStmt **before, Int count);
typedef Bool precise_fn(Int low, Int high, VexRegisterUpdates updates);

extern IRSB *__real_do_iropt_BB(IRSB *block, spec_fn *spec, precise_fn *precise, VexRegisterUpdates updates,
                                Addr addr, VexArch arch);
extern IRSB *__wrap_do_iropt_BB(IRSB *block, spec_fn *spec, precise_fn *precise, VexRegisterUpdates updates,
                                Addr addr, VexArch arch);

IRSB *__wrap_do_iropt_BB(IRSB *block, spec_fn *spec, precise_fn *precise, VexRegisterUpdates updates, Addr addr,
                         VexArch arch)
{
   return __real_do_iropt_BB(put_order(whole_registers(block)), spec, precise, updates, addr, arch);
}

/* VEX builds expression trees of temporaries used once, and so moves a load to where its value is used: over later
   instructions' register writes, but for those of rsp, rbp and rip. A load that faults there, and is repeated, would
   find registers that are too new. So every register counts as one that must be right when memory is accessed. */
static Bool always_precise(Int low, Int high, VexRegisterUpdates updates)
{
   (void)low;
   (void)high;
   (void)updates;
   return True;
}

extern Addr __real_ado_treebuild_BB(IRSB *block, precise_fn *precise, VexRegisterUpdates updates);
extern Addr __wrap_ado_treebuild_BB(IRSB *block, precise_fn *precise, VexRegisterUpdates updates);

Addr __wrap_ado_treebuild_BB(IRSB *block, precise_fn *precise, VexRegisterUpdates updates)
{
   (void)precise;
   return __real_ado_treebuild_BB(block, always_precise, updates);
}

extern SysRes __real_vgPlain_do_syscall(UWord number, RegWord a1, RegWord a2, RegWord a3, RegWord a4, RegWord a5,
                                        RegWord a6, RegWord a7, RegWord a8);
extern SysRes __wrap_vgPlain_do_syscall(UWord number, RegWord a1, RegWord a2, RegWord a3, RegWord a4, RegWord a5,
                                        RegWord a6, RegWord a7, RegWord a8);

SysRes __wrap_vgPlain_do_syscall(UWord number, RegWord a1, RegWord a2, RegWord a3, RegWord a4, RegWord a5,
                                 RegWord a6, RegWord a7, RegWord a8)
{
   const UWord args[6] = { a1, a2, a3, a4, a5, a6 };

   stream_syscall_asked(NULL, number, args);
   return __real_vgPlain_do_syscall(number, a1, a2, a3, a4, a5, a6, a7, a8);
}

/* The way of calls that may block: the arguments are in the guest's registers, and the big lock is not held. */
extern UWord __real_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                            const vki_sigset_t *restore, Word size);
extern UWord __wrap_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                            const vki_sigset_t *restore, Word size);

UWord __wrap_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                     const vki_sigset_t *restore, Word size)
{
   const VexGuestAMD64State *state = guest;
   const UWord args[6] = { state->guest_RDI, state->guest_RSI, state->guest_RDX,
                           state->guest_R10, state->guest_R8, state->guest_R9 };
   vki_sigset_t room;

   stream_syscall_asked(guest, (UWord)number, args);
   return __real_vgModuleLocal_do_syscall_for_client_WRK(number, guest, hold_mask(mask, &room), restore, size);
}

/* VEX checks its own work after every stage; without, a process starts 12 % faster. */
extern void __wrap_sanityCheckIRSB(const IRSB *block, const HChar *caller, Bool flat, IRType word);

void __wrap_sanityCheckIRSB(const IRSB *block, const HChar *caller, Bool flat, IRType word)
{
   (void)block;
   (void)caller;
   (void)flat;
   (void)word;
}
