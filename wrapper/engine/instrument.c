/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See instrument.h. Translation runs under the big lock.
 *
 * A block comes with no jump followed (guest_chase=no) and no loop unrolled, so it holds one branch, its last
 * instruction (before that, only jumps over nothing). A conditional jump is one TNT bit: before its side exit the bit
 * of that way is put into the register of branches, behind it the bit of the other way; or one bit where the
 * optimiser knew the outcome. Side exits of string and of locked instructions go around again, or on: they are no
 * branches.
 */
#include "instrument.h"
#include "anon_code.h"
#include "code_map.h"
#include "dead_flags.h"
#include "insn_class.h"
#include "planted.h"
#include "stream.h"
#include "tnt_register.h"
#include "unseen_puts.h"
#include "watch.h"

enum {
   /* Valgrind's client request: four rotations and an exchange in one IMark, of 4 bytes each but the last. */
   CLIENT_REQUEST_SIZE = 19, CLIENT_REQUEST_STEP = 4,
};

static struct instrument_options options;

struct block {
   IRSB *in, *out;
   Int ip_offset;          /* of rip in the guest state */
   Addr ip;                /* the current instruction */
   UInt size;
   struct insn insn;
   Bool branched;          /* its TNT bit is written */
   enum block_check check; /* how it begins */
   Bool stored;            /* the encoder has the branches that are in the register */
   Bool room;              /* the register has room for one more */
   Addr last;              /* its last instruction */
   Bool has_bit;           /* an instruction of the block writes a bit */
   Bool touches;           /* the instruction before may have touched what is watched */
};

void instrument_init(struct instrument_options chosen)
{
   options = chosen;
}

static IRExpr *constant(ULong value)
{
   return IRExpr_Const(IRConst_U64(value));
}

static IRExpr *assign(struct block *block, IRType type, IRExpr *value)
{
   IRTemp temporary = newIRTemp(block->out->tyenv, type);

   addStmtToIRSB(block->out, IRStmt_WrTmp(temporary, value));
   return IRExpr_RdTmp(temporary);
}

static IRExpr *binary(struct block *block, IROp op, IRExpr *a, IRExpr *b)
{
   return assign(block, Ity_I64, IRExpr_Binop(op, a, b));
}

/* The thread's encoder. */
static IRExpr *encoder_of(struct block *block)
{
   return assign(block, Ity_I64, IRExpr_Get((Int)stream_slot(), Ity_I64));
}

static IRDirty *helper_call(const HChar *name, void *helper, IRExpr **args, IRExpr *encoder)
{
   IRDirty *call = unsafeIRDirty_0_N(0, name, VG_(fnptr_to_fnentry)(helper), args);

   call->mFx = Ifx_Modify;
   call->mAddr = encoder;
   call->mSize = sizeof(struct pt_encoder);
   return call;
}

static void call_helper(struct block *block, const HChar *name, void *helper, IRExpr **args, IRExpr *encoder)
{
   addStmtToIRSB(block->out, IRStmt_Dirty(helper_call(name, helper, args, encoder)));
}

static IRExpr *get_branches(struct block *block)
{
   return assign(block, Ity_I64, IRExpr_Get(tnt_register_slot(), Ity_I64));
}

/* The register gets one more branch, another last one, or none. */
static void change_branches(struct block *block, enum tnt_change change)
{
   addStmtToIRSB(block->out, IRStmt_Put(tnt_register_slot(), constant(change)));
   block->stored = block->room = False;
}

static enum tnt_change add_branch(Bool taken)
{
   return taken ? TNT_ADD_TAKEN : TNT_ADD_NOT_TAKEN;
}

/* A function that changes the register. */
static void call_with_register(struct block *block, const HChar *name, void *helper, IRExpr **args, IRExpr *encoder,
                               IRExpr *guard)
{
   IRDirty *call = helper_call(name, helper, args, encoder);

   call->guard = guard;
   call->nFxState = 1;
   call->fxState[0].fx = Ifx_Modify;
   call->fxState[0].offset = (UShort)tnt_register_slot();
   call->fxState[0].size = sizeof(ULong);
   addStmtToIRSB(block->out, IRStmt_Dirty(call));
}

/* A full register goes to the helper, which leaves it empty. */
static void emit_room(struct block *block, IRExpr *encoder, IRExpr *tnt)
{
   call_with_register(block, "tnt_register_flush", tnt_register_flush, mkIRExprVec_1(encoder), encoder,
                      assign(block, Ity_I1, IRExpr_Binop(Iop_CmpLT64S, tnt, constant(0))));
   block->room = True;
}

/* Before an instruction: store the branches, and see that there is room where one comes. */
static void emit_ready(struct block *block, Bool bit)
{
   IRExpr *encoder, *tnt;

   if (block->stored && (block->room || !bit))
      return;
   encoder = encoder_of(block);
   tnt = get_branches(block);
   if (!block->stored)
      addStmtToIRSB(block->out, IRStmt_Store(Iend_LE, encoder, tnt));
   block->stored = True;
   if (bit && !block->room)
      emit_room(block, encoder, tnt);
}

/* A TIP or a far transfer, which writes the pending branches too. */
static void emit_packet(struct block *block, const HChar *name, void *helper, IRExpr **args, IRExpr *encoder)
{
   call_helper(block, name, helper, args, encoder);
   change_branches(block, TNT_EMPTY);
}

static IRExpr *field(struct block *block, IRExpr *encoder, SizeT offset)
{
   return binary(block, Iop_Add64, encoder, constant(offset));
}

static IRExpr *load(struct block *block, IRExpr *address)
{
   return assign(block, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, address));
}

static void store(struct block *block, IRExpr *address, IRExpr *value)
{
   addStmtToIRSB(block->out, IRStmt_Store(Iend_LE, address, value));
}

/* pt_call, inline: ret[ret_at] = return_address; ret_at moves on. */
static void emit_call(struct block *block, Addr return_address)
{
   IRExpr *encoder, *at_address, *at, *entry;

   if (!options.compress)
      return;
   encoder = encoder_of(block);
   at_address = field(block, encoder, offsetof(struct pt_encoder, ret_at));
   at = load(block, at_address);
   entry = field(block, binary(block, Iop_Add64, encoder, at), offsetof(struct pt_encoder, ret));
   store(block, entry, constant(return_address));
   at = binary(block, Iop_Add64, at, constant(8));
   store(block, at_address, binary(block, Iop_And64, at, constant(8 * (PT_RET_STACK - 1))));
}

/* pt_ret, inline, as if it goes back to its call; a function puts it right where it does not. */
static void emit_return(struct block *block, IRExpr *to)
{
   IRExpr *encoder = encoder_of(block), *at_address, *below, *entry_address, *entry;

   if (!options.compress) {
      emit_packet(block, "pt_tip", pt_tip, mkIRExprVec_2(encoder, to), encoder);
      return;
   }
   at_address = field(block, encoder, offsetof(struct pt_encoder, ret_at));
   below = binary(block, Iop_And64, binary(block, Iop_Sub64, load(block, at_address), constant(8)),
                  constant(8 * (PT_RET_STACK - 1)));
   entry_address = field(block, binary(block, Iop_Add64, encoder, below), offsetof(struct pt_encoder, ret));
   entry = load(block, entry_address);
   store(block, entry_address, constant(PT_RET_NONE));
   store(block, at_address, below);
   change_branches(block, add_branch(True));
   call_with_register(block, "tnt_register_missed", tnt_register_missed, mkIRExprVec_3(encoder, to, entry), encoder,
                      assign(block, Ity_I1, IRExpr_Binop(Iop_CmpNE64, entry, to)));
}

static void emit_log(struct block *block)
{
   UInt offset = 0, step = block->size == CLIENT_REQUEST_SIZE ? CLIENT_REQUEST_STEP : block->size + 1;

   do {
      IRExpr *encoder = encoder_of(block);

      call_helper(block, "stream_log", stream_log,
                  mkIRExprVec_3(encoder, constant(block->ip + offset), constant(block->insn.is_branch != 0)),
                  encoder);
      offset += step;
   } while (offset < block->size);
}

/* The optimiser folded the side exit: the outcome is known. */
static void emit_known_branch(struct block *block, Addr next)
{
   change_branches(block, add_branch(next != block->ip + block->size));
   block->branched = True;
}

/* An exit from the block; the branch's own has a bit before it, and the other bit behind it. */
static void emit_exit(struct block *block, IRStmt *exit)
{
   Addr to = exit->Ist.Exit.dst->Ico.U64;

   if (block->insn.class != INSN_COND_JUMP || exit->Ist.Exit.jk != Ijk_Boring || block->branched) {
      addStmtToIRSB(block->out, exit);
      return;
   }
   tl_assert2(to == block->insn.target || to == block->ip + block->size, "side exit of a jump to elsewhere");
   change_branches(block, add_branch(to == block->insn.target));
   addStmtToIRSB(block->out, exit);
   change_branches(block, TNT_OTHER);
   block->branched = True;
}

/* A division fault is no memory access, so VEX leaves rip behind: put it right first. */
static Bool may_divide(const IRStmt *statement)
{
   if (statement->tag != Ist_WrTmp || statement->Ist.WrTmp.data->tag != Iex_Binop)
      return False;
   switch (statement->Ist.WrTmp.data->Iex.Binop.op) {
   case Iop_DivModU128to64: case Iop_DivModS128to64: case Iop_DivModU64to32: case Iop_DivModS64to32:
   case Iop_DivModS64to64: case Iop_DivU64: case Iop_DivS64: case Iop_DivU32: case Iop_DivS32:
      return True;
   default:
      return False;
   }
}

static Bool writes_bit(const struct insn *insn)
{
   return insn->class == INSN_COND_JUMP || (insn->class == INSN_RETURN && options.compress);
}

/* An exit that goes on in another block without a look at Valgrind, to `at` or before it. */
static Bool goes_back(IRJumpKind kind, const IRConst *to, Addr at)
{
   return (kind == Ijk_Boring || kind == Ijk_Call || kind == Ijk_Ret) && to->Ico.U64 <= at;
}

/* `last`: of the block's instructions. String and locked instructions go around again before the block's end. */
static enum block_check check_of(const IRSB *in, Addr last, Bool bit)
{
   Addr ip = 0;
   Int i;

   for (i = 0; i < in->stmts_used; i++) {
      const IRStmt *statement = in->stmts[i];

      if (statement->tag == Ist_IMark)
         ip = statement->Ist.IMark.addr;
      else if (statement->tag == Ist_Exit && !(bit && ip == last)
               && goes_back(statement->Ist.Exit.jk, statement->Ist.Exit.dst, ip))
         return CHECK_EVENTS;
   }
   if (bit)
      return CHECK_BRANCHES;
   if (in->next->tag != Iex_Const || goes_back(in->jumpkind, in->next->Iex.Const.con, last))
      return CHECK_EVENTS;
   return CHECK_NOTHING;
}

/* Known ahead, so that room is made where no value is at hand yet that a call would have to spare. */
static void look_ahead(struct block *block)
{
   Int i;

   for (i = 0; i < block->in->stmts_used; i++) {
      const IRStmt *mark = block->in->stmts[i];
      struct insn insn;

      if (mark->tag != Ist_IMark)
         continue;
      block->last = mark->Ist.IMark.addr;
      insn = insn_classify(planted_code(block->last), mark->Ist.IMark.len, block->last);
      block->has_bit |= writes_bit(&insn);
   }
   block->check = check_of(block->in, block->last, block->has_bit);
   block->stored = True; /* each check stores them */
   block->room = block->check == CHECK_BRANCHES;
}

/* Wherever the block ends, its flags are set anew before anybody reads them. */
static Bool flags_dead(const IRSB *in, Addr last)
{
   Addr ip = 0;
   Int i;

   if (in->next->tag != Iex_Const || in->jumpkind != Ijk_Boring || !dead_flags_at(in->next->Iex.Const.con->Ico.U64, last))
      return False;
   for (i = 0; i < in->stmts_used; i++) {
      const IRStmt *statement = in->stmts[i];

      if (statement->tag == Ist_IMark)
         ip = statement->Ist.IMark.addr;
      else if (statement->tag == Ist_Exit && (ip != last || statement->Ist.Exit.jk != Ijk_Boring
                                              || !dead_flags_at(statement->Ist.Exit.dst->Ico.U64, last)))
         return False;
   }
   return True;
}

static void begin_instruction(struct block *block, IRStmt *mark)
{
   block->ip = mark->Ist.IMark.addr;
   block->size = mark->Ist.IMark.len;
   block->branched = False;
   block->insn = insn_classify(planted_code(block->ip), block->size, block->ip);
   addStmtToIRSB(block->out, mark);
   emit_ready(block, block->has_bit);
   if (block->touches)
      watch_leave(block->out, block->ip, block->ip_offset);
   block->touches = False;
   if (options.log)
      emit_log(block);
}

/* The block ends with a fault, not with its last instruction. */
static Bool ends_in_fault(IRJumpKind kind)
{
   switch (kind) {
   case Ijk_NoDecode: case Ijk_MapFail: case Ijk_SigSEGV: case Ijk_SigILL: case Ijk_SigBUS: case Ijk_SigFPE:
   case Ijk_SigFPE_IntDiv: case Ijk_SigFPE_IntOvf:
      return True;
   default:
      return False;
   }
}

static void end_block(struct block *block)
{
   IRExpr *encoder, *next = block->in->next;

   if (ends_in_fault(block->in->jumpkind))
      return;
   switch (block->insn.class) {
   case INSN_COND_JUMP:
      if (!block->branched) {
         tl_assert2(next->tag == Iex_Const, "end of a conditional jump unknown");
         emit_known_branch(block, next->Iex.Const.con->Ico.U64);
      }
      break;
   case INSN_CALL:
      if (block->insn.target != block->ip + block->size) /* that one only asks where it is */
         emit_call(block, block->ip + block->size);
      break;
   case INSN_IND_CALL:
      emit_call(block, block->ip + block->size); /* fall through */
   case INSN_IND_JUMP:
      encoder = encoder_of(block);
      emit_packet(block, "pt_tip", pt_tip, mkIRExprVec_2(encoder, next), encoder);
      break;
   case INSN_RETURN:
      emit_return(block, next);
      break;
   case INSN_FAR:
      encoder = encoder_of(block);
      emit_packet(block, "stream_far", stream_far, mkIRExprVec_1(encoder), encoder);
      break;
   case INSN_OTHER:
      break;
   }
}

/* Between two instructions of one block: a jump over nothing does not end it. */
static void end_instruction(struct block *block, Addr next)
{
   if (block->insn.class == INSN_COND_JUMP && !block->branched)
      emit_known_branch(block, next);
   if (block->insn.class == INSN_CALL && block->insn.target != block->ip + block->size)
      emit_call(block, block->ip + block->size);
}

static void emit_statement(struct block *block, IRStmt *statement)
{
   if (may_divide(statement))
      addStmtToIRSB(block->out, IRStmt_Put(block->ip_offset, constant(block->ip)));
   if (statement->tag == Ist_Exit)
      emit_exit(block, statement);
   else
      addStmtToIRSB(block->out, statement);
   if (watch_active() && watch_statement(block->out, statement, block->ip))
      block->touches = True;
}

IRSB *instrument_block(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                       const VexGuestExtents *extents, const VexArchInfo *arch, IRType guest_word, IRType host_word)
{
   struct block block = { .in = in, .out = deepCopyIRSBExceptStmts(in), .ip_offset = layout->offset_IP,
                          .touches = watch_active() };
   Bool settled;
   Int i = 0;

   (void)arch;
   (void)guest_word;
   (void)host_word;
   look_ahead(&block);
   if (in->jumpkind == Ijk_SigTRAP && closure->readdr == closure->nraddr)
      planted_suspect();
   tnt_register_check(block.check);
   if (closure->readdr != closure->nraddr)  /* Valgrind's own code in place of the program's */
      anon_code_translated(closure->nraddr, (const UChar *)closure->readdr, extents->len[0]);
   else
      code_map_translated(extents->base[0], extents->len[0]);
   /* Code that changes may become code that reads the flags; a watchpoint's handler is told them. */
   settled = closure->readdr == closure->nraddr && !code_map_volatile(extents->base[0]) && !watch_active();
   unseen_puts_remove(in, settled && flags_dead(in, block.last));
   for (; i < in->stmts_used && in->stmts[i]->tag != Ist_IMark; i++)
      addStmtToIRSB(block.out, in->stmts[i]);
   for (; i < in->stmts_used; i++) {
      IRStmt *statement = in->stmts[i];

      if (statement->tag == Ist_IMark) {
         if (block.size > 0)
            end_instruction(&block, statement->Ist.IMark.addr);
         begin_instruction(&block, statement);
      } else if (statement->tag != Ist_NoOp) {
         emit_statement(&block, statement);
      }
   }
   end_block(&block);
   return block.out;
}
