/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See unseen_puts.h. Memory is VEX's, for one block. */
#include "unseen_puts.h"
#include "libvex_guest_amd64.h"

/* VEX's kinds of flag operations (3.19: AMD64G_CC_OP_…), each in the sizes b, w, l, q. */
enum {
   FLAGS_COPY = 0, FLAGS_ADD = 1, FLAGS_SUB = 5, FLAGS_ADC = 9, FLAGS_LOGIC = 17, FLAGS_INC = 21, FLAGS_SHL = 29,
   FLAGS_ROL = 37, FLAGS_UNKNOWN = 255,
};

enum { AT_RIP = offsetof(VexGuestAMD64State, guest_RIP), AT_OP = offsetof(VexGuestAMD64State, guest_CC_OP),
       AT_DEP2 = offsetof(VexGuestAMD64State, guest_CC_DEP2), AT_NDEP = offsetof(VexGuestAMD64State, guest_CC_NDEP),
       SIZE = 8 /* of each; the four of the flags are one behind another */ };

_Static_assert(AT_NDEP == AT_OP + 3 * SIZE, "one behind another");

static Bool writes(const IRStmt *statement, Int offset)
{
   return statement->tag == Ist_Put && statement->Ist.Put.offset == offset;
}

/* The 64-bit constant that a statement writes; `otherwise` when it is none. */
static ULong constant_of(const IRStmt *put, ULong otherwise)
{
   const IRExpr *data = put->Ist.Put.data;

   return data->tag == Iex_Const && data->Iex.Const.con->tag == Ico_U64 ? data->Iex.Const.con->Ico.U64 : otherwise;
}

/* The third value is the old flags, where there is one. */
static Bool uses_third(ULong flags)
{
   return !(flags < FLAGS_ADC || (flags >= FLAGS_LOGIC && flags < FLAGS_INC) ||
            (flags >= FLAGS_SHL && flags < FLAGS_ROL));
}

static Bool uses_second(ULong flags)
{
   return !(flags >= FLAGS_LOGIC && flags < FLAGS_INC);
}

static void remove_flag_values(IRSB *block)
{
   ULong flags = FLAGS_UNKNOWN; /* of the current instruction */
   Int i;

   for (i = 0; i < block->stmts_used; i++) {
      const IRStmt *statement = block->stmts[i];

      if (statement->tag == Ist_IMark)
         flags = FLAGS_UNKNOWN;
      else if (writes(statement, AT_OP))
         flags = constant_of(statement, FLAGS_UNKNOWN);
      else if ((writes(statement, AT_DEP2) && !uses_second(flags) && constant_of(statement, 1) == 0) ||
               (writes(statement, AT_NDEP) && !uses_third(flags) && constant_of(statement, 1) == 0))
         block->stmts[i] = IRStmt_NoOp();
   }
}

/* It may fault, or reads what is at [low, high) of the guest's state. */
static Bool sees(const IRStmt *statement, Int low, Int high)
{
   const IRExpr *data;

   switch (statement->tag) {
   case Ist_NoOp: case Ist_IMark: case Ist_AbiHint: case Ist_Put: case Ist_Exit:
      return False;
   case Ist_WrTmp:
      data = statement->Ist.WrTmp.data;
      switch (data->tag) {
      case Iex_RdTmp: case Iex_Const: case Iex_Unop: case Iex_ITE: case Iex_CCall: case Iex_Triop:
      case Iex_Qop:
         return False;
      case Iex_Binop: /* a division */
         return data->Iex.Binop.op >= Iop_DivU32 && data->Iex.Binop.op <= Iop_DivModU32to32;
      case Iex_Get:
         return data->Iex.Get.offset < high && low < data->Iex.Get.offset + sizeofIRType(data->Iex.Get.ty);
      default:
         return True;
      }
   default:
      return True;
   }
}

static void remove_rips(IRSB *block)
{
   Bool unseen = True; /* a write of rip here */
   Int i;

   for (i = block->stmts_used - 1; i >= 0; i--) {
      if (writes(block->stmts[i], AT_RIP)) {
         if (unseen)
            block->stmts[i] = IRStmt_NoOp();
         unseen = True;
      } else if (sees(block->stmts[i], AT_RIP, AT_RIP + SIZE)) {
         unseen = False;
      }
   }
}

/* Those behind whatever sees them last. */
static void remove_dead_flags(IRSB *block)
{
   Int i;

   for (i = block->stmts_used - 1; i >= 0 && !sees(block->stmts[i], AT_OP, AT_NDEP + SIZE); i--)
      if (block->stmts[i]->tag == Ist_Put && block->stmts[i]->Ist.Put.offset >= AT_OP
          && block->stmts[i]->Ist.Put.offset <= AT_NDEP)
         block->stmts[i] = IRStmt_NoOp();
}

void unseen_puts_remove(IRSB *block, Bool flags_dead)
{
   remove_flag_values(block);
   if (flags_dead)
      remove_dead_flags(block);
   remove_rips(block);
}
