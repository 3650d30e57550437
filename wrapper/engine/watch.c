/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See watch.h. */
#include "watch.h"
#include "stream.h"
#include "libvex_guest_amd64.h"
#include "../../preload/src/watch_format.h"

enum { READ_BIT = 16, TRAP_OF_PERF = 6, OF_BREAKPOINT = 5, REQUEST_ARGS = 2 };

static struct ptw_watched_range ranges[PTW_WATCHES];
static UInt count;
static ULong low, high;      /* all of them lie in [low, high) */
static Bool delivering;

Bool watch_active(void)
{
   return count > 0;
}

/* --- what is watched --- */

Bool watch_request(ThreadId tid, UWord *args, UWord *ret)
{
   const struct ptw_watched_range *asked = (const struct ptw_watched_range *)args[1];
   UInt i;

   (void)tid;
   if (args[0] != PTW_WATCH_REQUEST)
      return False;
   *ret = 0;
   if (args[REQUEST_ARGS] > PTW_WATCHES ||
       !VG_(am_is_valid_for_client)((Addr)asked, sizeof *asked * args[REQUEST_ARGS], VKI_PROT_READ))
      return True;
   count = (UInt)args[REQUEST_ARGS];
   low = ~0ULL;
   high = 0;
   for (i = 0; i < count; i++) {
      ranges[i] = asked[i];
      if (ranges[i].length == 0 || ranges[i].length > PTW_WATCH_BYTES)
         ranges[i].length = 0;
      else {
         low = ranges[i].address < low ? ranges[i].address : low;
         high = ranges[i].address + ranges[i].length > high ? ranges[i].address + ranges[i].length : high;
      }
   }
   if (high == 0)
      count = 0;
   VG_(discard_translations)(0x1000, 0x7fffffffe000ULL, "watchpoints"); /* code without them */
   *ret = 1;
   return True;
}

/* --- at run time --- */

static struct ptsoft_thread *thread_of(struct pt_encoder *encoder)
{
   return (struct ptsoft_thread *)((UChar *)encoder - offsetof(struct ptsoft_thread, encoder));
}

/* Called by generated code: `bytes` at `address` were read (1), written (2) or both. */
static void touched(struct pt_encoder *encoder, ULong address, ULong bytes, ULong how, ULong ip)
{
   struct ptsoft_thread *thread = thread_of(encoder);
   UInt i;

   for (i = 0; i < count; i++) {
      ULong wanted = (how & 2 ? ranges[i].mode & PTW_WATCH_WRITE ? 1ULL << i : 0 : 0) |
                     (how & 1 ? ranges[i].mode & PTW_WATCH_READ ? 1ULL << (READ_BIT + i) : 0 : 0);

      if (wanted == 0 || address >= ranges[i].address + ranges[i].length || address + bytes <= ranges[i].address)
         continue;
      thread->watch_hit |= wanted;
      thread->watch_ip = ip;
   }
}

/* --- translation --- */

static IRExpr *constant(ULong value)
{
   return IRExpr_Const(IRConst_U64(value));
}

static IRExpr *assign(IRSB *out, IRType type, IRExpr *value)
{
   IRTemp temporary = newIRTemp(out->tyenv, type);

   addStmtToIRSB(out, IRStmt_WrTmp(temporary, value));
   return IRExpr_RdTmp(temporary);
}

static IRExpr *encoder_of(IRSB *out)
{
   return assign(out, Ity_I64, IRExpr_Get((Int)stream_slot(), Ity_I64));
}

/* A call if [address, address + bytes) and [low, high) overlap, and `guard` holds (NULL: always). */
static void emit(IRSB *out, IRExpr *address, ULong bytes, ULong how, Addr ip, IRExpr *guard)
{
   IRExpr *distance = assign(out, Ity_I64, IRExpr_Binop(Iop_Sub64, address, constant(low - bytes + 1)));
   IRExpr *near = assign(out, Ity_I1, IRExpr_Binop(Iop_CmpLT64U, distance, constant(high - low + bytes - 1)));
   IRExpr *encoder = encoder_of(out);
   IRDirty *call = unsafeIRDirty_0_N(0, "watch_touched", VG_(fnptr_to_fnentry)(touched),
                                     mkIRExprVec_5(encoder, address, constant(bytes), constant(how), constant(ip)));

   call->guard = guard == NULL ? near : assign(out, Ity_I1, IRExpr_Binop(Iop_And1, near, guard));
   call->mFx = Ifx_Modify;
   call->mAddr = encoder;
   call->mSize = sizeof(struct pt_encoder);
   addStmtToIRSB(out, IRStmt_Dirty(call));
}

static ULong size_of(IRSB *out, const IRExpr *data)
{
   return (ULong)sizeofIRType(typeOfIRExpr(out->tyenv, data));
}

static IRType loaded_type(const IRLoadG *load)
{
   IRType wide, narrow;

   typeOfIRLoadGOp(load->cvt, &wide, &narrow);
   return narrow;
}

Bool watch_statement(IRSB *out, const IRStmt *statement, Addr ip)
{
   const IRExpr *data;
   const IRCAS *cas;
   const IRDirty *dirty;

   switch (statement->tag) {
   case Ist_WrTmp:
      data = statement->Ist.WrTmp.data;
      if (data->tag != Iex_Load)
         return False;
      emit(out, data->Iex.Load.addr, (ULong)sizeofIRType(data->Iex.Load.ty), 1, ip, NULL);
      return True;
   case Ist_LoadG:
      emit(out, statement->Ist.LoadG.details->addr,
           (ULong)sizeofIRType(loaded_type(statement->Ist.LoadG.details)), 1, ip, statement->Ist.LoadG.details->guard);
      return True;
   case Ist_Store:
      emit(out, statement->Ist.Store.addr, size_of(out, statement->Ist.Store.data), 2, ip, NULL);
      return True;
   case Ist_StoreG:
      emit(out, statement->Ist.StoreG.details->addr, size_of(out, statement->Ist.StoreG.details->data), 2, ip,
           statement->Ist.StoreG.details->guard);
      return True;
   case Ist_CAS:
      cas = statement->Ist.CAS.details;
      emit(out, cas->addr, size_of(out, cas->dataLo) * (cas->dataHi == NULL ? 1 : 2), 3, ip, NULL);
      return True;
   case Ist_Dirty:
      dirty = statement->Ist.Dirty.details;
      if (dirty->mFx == Ifx_None)
         return False;
      emit(out, dirty->mAddr, (ULong)dirty->mSize,
           (dirty->mFx != Ifx_Write ? 1 : 0) | (dirty->mFx != Ifx_Read ? 2 : 0), ip, dirty->guard);
      return True;
   default:
      return False;
   }
}

void watch_leave(IRSB *out, Addr ip, Int ip_offset)
{
   IRExpr *at = assign(out, Ity_I64, IRExpr_Binop(Iop_Add64, encoder_of(out),
                       constant(offsetof(struct ptsoft_thread, watch_hit) - offsetof(struct ptsoft_thread, encoder))));
   IRExpr *hit = assign(out, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, at));
   IRExpr *any = assign(out, Ity_I1, IRExpr_Binop(Iop_CmpNE64, hit, constant(0)));

   addStmtToIRSB(out, IRStmt_Exit(any, Ijk_SigTRAP, IRConst_U64(ip), ip_offset));
}

/* --- the signal --- */

Bool watch_delivers(ThreadId tid, Bool fault)
{
   struct ptsoft_thread *thread = stream_thread(tid);

   if (!delivering && fault && thread != NULL)
      thread->watch_hit = 0;
   return delivering;
}

/* The frame is on the program's stack: rsi points to what the handler is told. */
static void tell(ThreadId tid, ULong hit, ULong ip)
{
   UChar *info;

   VG_(get_shadow_regs_area)(tid, (UChar *)&info, 0, offsetof(VexGuestAMD64State, guest_RSI), sizeof info);
   if (!VG_(am_is_valid_for_client)((Addr)info, 40, VKI_PROT_WRITE))
      return;
   *(Int *)(info + 8) = TRAP_OF_PERF;
   *(ULong *)(info + 16) = ip;
   *(ULong *)(info + 24) = PTW_WATCH_BY_ENGINE | hit;
   *(UInt *)(info + 32) = OF_BREAKPOINT;
   *(UInt *)(info + 36) = 0;
}

extern void __real_vgPlain_synth_sigtrap(ThreadId tid);
extern void __wrap_vgPlain_synth_sigtrap(ThreadId tid);

void __wrap_vgPlain_synth_sigtrap(ThreadId tid)
{
   struct ptsoft_thread *thread = stream_thread(tid);
   ULong hit = thread == NULL ? 0 : thread->watch_hit;

   if (hit == 0) { /* an instruction of the program's */
      __real_vgPlain_synth_sigtrap(tid);
      return;
   }
   thread->watch_hit = 0;
   delivering = True;
   __real_vgPlain_synth_sigtrap(tid);
   delivering = False;
   tell(tid, hit, thread->watch_ip);
}
