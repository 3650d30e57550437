/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See bit_test.h. One place serves all threads: no thread runs while another is inside an instruction. */
#include "bit_test.h"
#include "planted.h"
#include "libvex_guest_amd64.h"

enum { VEX_DROP = 288 }; /* how far VEX 3.19 moves rsp down */

static ULong scratch[2];

static Bool is_prefix(UChar byte)
{
   return byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e || byte == 0x3e || (byte & 0xf0) == 0x40;
}

/* 0F A3, AB, B3, BB: with a register (mod is 3). By a constant (0F BA), VEX uses no memory. */
static Bool is_bit_test(const UChar *code, UInt size)
{
   UInt at = 0;

   while (at < size && is_prefix(code[at]))
      at++;
   if (at + 3 > size || code[at] != 0x0f || code[at + 2] < 0xc0)
      return False;
   return (code[at + 1] & 0xe7) == 0xa3;
}

/* `statement` is t = op(arg, 288): its arg; NULL otherwise. */
static IRExpr *moved_by_drop(const IRStmt *statement, IROp op)
{
   const IRExpr *data, *size;

   if (statement->tag != Ist_WrTmp || statement->Ist.WrTmp.data->tag != Iex_Binop)
      return NULL;
   data = statement->Ist.WrTmp.data;
   size = data->Iex.Binop.arg2;
   if (data->Iex.Binop.op != op || size->tag != Iex_Const || size->Iex.Const.con->tag != Ico_U64 ||
       size->Iex.Const.con->Ico.U64 != VEX_DROP)
      return NULL;
   return data->Iex.Binop.arg1;
}

static Bool writes_rsp(const IRStmt *statement)
{
   return statement->tag == Ist_Put && statement->Ist.Put.offset == offsetof(VexGuestAMD64State, guest_RSP);
}

IRStmt *bit_test_statement(struct bit_test *test, IRStmt *statement)
{
   IRExpr *rsp;

   if (statement->tag == Ist_IMark) {
      test->rsp = NULL;
      test->possible = is_bit_test(planted_code(statement->Ist.IMark.addr), statement->Ist.IMark.len);
   } else if (test->possible && test->rsp == NULL && (rsp = moved_by_drop(statement, Iop_Sub64)) != NULL) {
      test->rsp = rsp;
      test->place = statement->Ist.WrTmp.tmp;
      return IRStmt_WrTmp(test->place, IRExpr_Const(IRConst_U64((Addr)scratch)));
   } else if (test->rsp != NULL && writes_rsp(statement)) {
      return NULL;
   } else if (test->rsp != NULL && (rsp = moved_by_drop(statement, Iop_Add64)) != NULL &&
              rsp->tag == Iex_RdTmp && rsp->Iex.RdTmp.tmp == test->place) {
      return IRStmt_WrTmp(statement->Ist.WrTmp.tmp, test->rsp); /* what later instructions take for rsp */
   }
   return statement;
}
