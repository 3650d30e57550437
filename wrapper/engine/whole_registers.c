/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See whole_registers.h. Memory is VEX's, for one block; VEX's optimiser finds the whole where it is known. */
#include "whole_registers.h"
#include "libvex_guest_amd64.h"

enum { REGISTERS = 16, FIRST = offsetof(VexGuestAMD64State, guest_RAX), SIZE = 8, NONE = -1 };

_Static_assert(offsetof(VexGuestAMD64State, guest_R15) == FIRST + (REGISTERS - 1) * SIZE, "one behind another");

struct whole {
   IRSB *out;
   IRExpr *part[REGISTERS];   /* what its low part was set to last, as long as that is so; NULL unknown */
};

/* The general register whose low end is at `offset`. */
static Int register_at(Int offset)
{
   if (offset < FIRST || offset >= FIRST + REGISTERS * SIZE || (offset - FIRST) % SIZE != 0)
      return NONE;
   return (offset - FIRST) / SIZE;
}

static void forget(struct whole *whole, Int offset, Int size)
{
   Int i;

   for (i = 0; i < REGISTERS; i++)
      if (offset < FIRST + (i + 1) * SIZE && FIRST + i * SIZE < offset + size)
         whole->part[i] = NULL;
}

static IRExpr *assign(struct whole *whole, IRExpr *value)
{
   IRTemp temporary = newIRTemp(whole->out->tyenv, Ity_I64);

   addStmtToIRSB(whole->out, IRStmt_WrTmp(temporary, value));
   return IRExpr_RdTmp(temporary);
}

static void put_part(struct whole *whole, IRStmt *put, IRType type)
{
   Bool byte = type == Ity_I8;
   Int offset = put->Ist.Put.offset;
   ULong rest = byte ? ~(ULong)0xff : ~(ULong)0xffff;
   IRExpr *old = assign(whole, IRExpr_Get(offset, Ity_I64)), *part;

   old = assign(whole, IRExpr_Binop(Iop_And64, old, IRExpr_Const(IRConst_U64(rest))));
   part = assign(whole, IRExpr_Unop(byte ? Iop_8Uto64 : Iop_16Uto64, put->Ist.Put.data));
   addStmtToIRSB(whole->out, IRStmt_Put(offset, assign(whole, IRExpr_Binop(Iop_Or64, old, part))));
   whole->part[register_at(offset)] = put->Ist.Put.data;
}

static void put(struct whole *whole, IRStmt *statement)
{
   IRType type = typeOfIRExpr(whole->out->tyenv, statement->Ist.Put.data);
   Int offset = statement->Ist.Put.offset;

   forget(whole, offset, sizeofIRType(type));
   if (register_at(offset) != NONE && (type == Ity_I8 || type == Ity_I16))
      put_part(whole, statement, type);
   else
      addStmtToIRSB(whole->out, statement);
}

/* A read of a part that was written in this block is what was written, as VEX's optimiser would find by itself. */
static IRStmt *get(const struct whole *whole, IRStmt *statement)
{
   const IRExpr *data = statement->Ist.WrTmp.data;
   Int number = register_at(data->Iex.Get.offset);
   IRExpr *part = number == NONE ? NULL : whole->part[number];

   if (part == NULL || typeOfIRExpr(whole->out->tyenv, part) != data->Iex.Get.ty)
      return statement;
   return IRStmt_WrTmp(statement->Ist.WrTmp.tmp, part);
}

static Bool may_change_registers(const IRStmt *statement)
{
   return statement->tag == Ist_PutI || (statement->tag == Ist_Dirty && statement->Ist.Dirty.details->nFxState > 0);
}

IRSB *whole_registers(const IRSB *in)
{
   struct whole whole = { .out = deepCopyIRSBExceptStmts(in) };
   Int i;

   for (i = 0; i < in->stmts_used; i++) {
      IRStmt *statement = in->stmts[i];

      if (statement->tag == Ist_Put) {
         put(&whole, statement);
         continue;
      }
      if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Get)
         statement = get(&whole, statement);
      else if (may_change_registers(statement))
         forget(&whole, FIRST, REGISTERS * SIZE);
      addStmtToIRSB(whole.out, statement);
   }
   return whole.out;
}
