/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See put_order.h. The IR comes in flat: operands are temporaries or constants. Memory is VEX's, for one block. */
#include "put_order.h"
#include "libvex_guest_amd64.h"

enum { PUTS_HELD = 24 };

struct put_order {
   IRSB *out;
   Int last_access;           /* index of the instruction's last access to memory; -1 none */
   UInt held;
   IRStmt *puts[PUTS_HELD];
};

static Bool accesses_memory(const IRStmt *statement)
{
   switch (statement->tag) {
   case Ist_Store: case Ist_StoreG: case Ist_LoadG: case Ist_CAS: case Ist_LLSC:
      return True;
   case Ist_WrTmp:
      return statement->Ist.WrTmp.data->tag == Iex_Load;
   case Ist_Dirty:
      return statement->Ist.Dirty.details->mFx != Ifx_None;
   default:
      return False;
   }
}

/* An instruction begins: its statements are in->stmts[first] to the next IMark or the end. */
static void begin_instruction(struct put_order *order, const IRSB *in, Int first)
{
   Int i;

   order->last_access = -1;
   for (i = first; i < in->stmts_used && in->stmts[i]->tag != Ist_IMark; i++)
      if (accesses_memory(in->stmts[i]))
         order->last_access = i;
}

static IRType put_type(const struct put_order *order, const IRStmt *put)
{
   return typeOfIRExpr(order->out->tyenv, put->Ist.Put.data);
}

static Bool overlaps(const struct put_order *order, Int offset, Int size)
{
   UInt i;

   for (i = 0; i < order->held; i++) {
      Int start = order->puts[i]->Ist.Put.offset;

      if (start < offset + size && offset < start + sizeofIRType(put_type(order, order->puts[i])))
         return True;
   }
   return False;
}

/* A statement before which the registers must be up to date. */
static Bool needs_registers(const struct put_order *order, const IRStmt *statement)
{
   const IRExpr *data;

   switch (statement->tag) {
   case Ist_Exit: case Ist_PutI: case Ist_MBE:
      return True;
   case Ist_Dirty:
      return statement->Ist.Dirty.details->nFxState > 0;
   case Ist_WrTmp:
      data = statement->Ist.WrTmp.data;
      if (data->tag == Iex_GetI)
         return True;
      return data->tag == Iex_Get && overlaps(order, data->Iex.Get.offset, sizeofIRType(data->Iex.Get.ty));
   default:
      return False;
   }
}

static Bool is_zero_vector(const IRStmt *put)
{
   const IRExpr *data = put->Ist.Put.data;

   return data->tag == Iex_Const && data->Iex.Const.con->tag == Ico_V128 && data->Iex.Const.con->Ico.V128 == 0;
}

static IRExpr *assign(IRSB *out, IRType type, IRExpr *value)
{
   IRTemp temporary = newIRTemp(out->tyenv, type);

   addStmtToIRSB(out, IRStmt_WrTmp(temporary, value));
   return IRExpr_RdTmp(temporary);
}

/* `low` widened by zeros to a whole register; NULL if it is no scalar. */
static IRExpr *widened(IRSB *out, IRExpr *low)
{
   switch (typeOfIRExpr(out->tyenv, low)) {
   case Ity_F64:
      low = assign(out, Ity_I64, IRExpr_Unop(Iop_ReinterpF64asI64, low)); /* fall through */
   case Ity_I64:
      return assign(out, Ity_V128, IRExpr_Unop(Iop_64UtoV128, low));
   case Ity_F32:
      low = assign(out, Ity_I32, IRExpr_Unop(Iop_ReinterpF32asI32, low)); /* fall through */
   case Ity_I32:
      return assign(out, Ity_V128, IRExpr_Unop(Iop_32UtoV128, low));
   default:
      return NULL;
   }
}

static void flush(struct put_order *order)
{
   UInt i;

   for (i = 0; i < order->held; i++) {
      IRStmt *put = order->puts[i], *next = i + 1 < order->held ? order->puts[i + 1] : NULL;
      IRExpr *whole = NULL;

      if (next != NULL && is_zero_vector(put) && next->Ist.Put.offset == put->Ist.Put.offset)
         whole = widened(order->out, next->Ist.Put.data);
      if (whole != NULL) {
         addStmtToIRSB(order->out, IRStmt_Put(put->Ist.Put.offset, whole));
         i++;
      } else {
         addStmtToIRSB(order->out, put);
      }
   }
   order->held = 0;
}

/* Held: writes before the last access, and a cleared vector register, whose low lane comes next. */
static Bool is_held(const struct put_order *order, const IRStmt *statement, Int at)
{
   if (statement->tag != Ist_Put || statement->Ist.Put.offset == offsetof(VexGuestAMD64State, guest_RIP))
      return False;
   return at < order->last_access || is_zero_vector(statement) || order->held > 0;
}

static void emit(struct put_order *order, IRStmt *statement, Int at)
{
   if (order->held > 0 && needs_registers(order, statement))
      flush(order);
   if (is_held(order, statement, at) && order->held < PUTS_HELD) {
      order->puts[order->held++] = statement;
      return;
   }
   if (statement->tag == Ist_Put)
      flush(order); /* keep the order of writes */
   addStmtToIRSB(order->out, statement);
}

IRSB *put_order(const IRSB *in)
{
   struct put_order order = { .out = deepCopyIRSBExceptStmts(in), .last_access = -1 };
   Int i;

   for (i = 0; i < in->stmts_used; i++) {
      if (in->stmts[i]->tag == Ist_IMark) {
         flush(&order);
         begin_instruction(&order, in, i + 1);
      }
      emit(&order, in->stmts[i], i);
   }
   flush(&order);
   return order.out;
}
