/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See dead_flags.h. Knows the common instructions on registers (SDM vol. 2, appendix A); all others may do anything. */
#include "dead_flags.h"

enum { PAGE = 4096, LOOKED_AT = 8, /* instructions */ LONGEST = 15 };

struct code {
   const uint8_t *at;   /* the opcode, behind the prefix */
   int wide;            /* REX.W */
   enum flag_effect effect;
   unsigned size;       /* from `at` on */
};

static int on_registers(uint8_t modrm)
{
   return modrm >= 0xc0;
}

static unsigned field(uint8_t modrm)
{
   return modrm >> 3 & 7;
}

/* Bytes of a ModRM, what comes with it included. */
static unsigned operand_size(const uint8_t *modrm)
{
   unsigned mod = modrm[0] >> 6, size = (modrm[0] & 7) == 4 && mod != 3 ? 2 : 1;
   unsigned base = size == 2 ? modrm[1] & 7 : modrm[0] & 7;

   if (mod == 1)
      return size + 1;
   return size + (mod == 2 || (mod == 0 && base == 5) ? 4 : 0);
}

static void set(struct code *code, enum flag_effect effect, unsigned size)
{
   code->effect = effect;
   code->size = size;
}

/* ADD OR ADC SBB AND SUB XOR CMP: two of them read the carry. */
static enum flag_effect of_arithmetic(unsigned operation)
{
   return operation == 2 || operation == 3 ? FLAGS_ANYTHING : FLAGS_SET;
}

static void two_bytes(struct code *code)
{
   const uint8_t *at = code->at;

   switch (at[1]) {
   case 0x1f:                                           /* nop */
      set(code, FLAGS_KEPT, 2 + operand_size(at + 2));
      break;
   case 0xb6: case 0xb7: case 0xbe: case 0xbf:          /* movzx, movsx */
      set(code, on_registers(at[2]) ? FLAGS_KEPT : FLAGS_ANYTHING, 3);
      break;
   case 0xaf:                                           /* imul */
      set(code, on_registers(at[2]) ? FLAGS_SET : FLAGS_ANYTHING, 3);
      break;
   }
}

/* Instructions with a ModRM that names registers. */
static void with_registers(struct code *code)
{
   const uint8_t *at = code->at;

   switch (at[0]) {
   case 0x63: case 0x88: case 0x89: case 0x8a: case 0x8b:  /* movsxd, mov */
      set(code, FLAGS_KEPT, 2);
      break;
   case 0xc6: case 0xc7:                                   /* mov, of a constant */
      set(code, field(at[1]) == 0 ? FLAGS_KEPT : FLAGS_ANYTHING, at[0] == 0xc6 ? 3 : 6);
      break;
   case 0x84: case 0x85:                                   /* test */
      set(code, FLAGS_SET, 2);
      break;
   case 0x80: case 0x83:
      set(code, of_arithmetic(field(at[1])), 3);
      break;
   case 0x81:
      set(code, of_arithmetic(field(at[1])), 6);
      break;
   case 0xf6: case 0xf7:                                   /* test, not, neg */
      if (field(at[1]) == 0)
         set(code, FLAGS_SET, at[0] == 0xf6 ? 3 : 6);
      else if (field(at[1]) == 2 || field(at[1]) == 3)
         set(code, field(at[1]) == 2 ? FLAGS_KEPT : FLAGS_SET, 2);
      break;
   default:
      if (at[0] < 0x40 && (at[0] & 7) < 4)
         set(code, of_arithmetic(field(at[0])), 2);
   }
}

static void one_byte(struct code *code)
{
   const uint8_t *at = code->at;

   if (at[0] == 0x90)                                      /* nop; with REX.B an exchange of registers */
      set(code, FLAGS_KEPT, 1);
   else if (at[0] >= 0xb0 && at[0] < 0xb8)                 /* mov, of a constant */
      set(code, FLAGS_KEPT, 2);
   else if (at[0] >= 0xb8 && at[0] < 0xc0)
      set(code, FLAGS_KEPT, code->wide ? 9 : 5);
   else if (at[0] == 0x8d && !on_registers(at[1]))         /* lea */
      set(code, FLAGS_KEPT, 1 + operand_size(at + 1));
   else if (at[0] == 0xa8 || at[0] == 0xa9)                /* test */
      set(code, FLAGS_SET, at[0] == 0xa8 ? 2 : 5);
   else if (at[0] < 0x40 && (at[0] & 7) == 4)
      set(code, of_arithmetic(field(at[0])), 2);
   else if (at[0] < 0x40 && (at[0] & 7) == 5)
      set(code, of_arithmetic(field(at[0])), 5);
   else if (on_registers(at[1]))
      with_registers(code);
}

enum flag_effect flag_effect_of(const uint8_t *bytes, unsigned *size)
{
   unsigned prefix = (bytes[0] & 0xf0) == 0x40 ? 1 : 0;
   struct code code = { bytes + prefix, (bytes[0] & 0xf8) == 0x48, FLAGS_ANYTHING, 0 };

   if (bytes[0] == 0xf3 && bytes[1] == 0x0f && bytes[2] == 0x1e && bytes[3] == 0xfa)
      set(&code, FLAGS_KEPT, 4); /* endbr64 */
   else if (code.at[0] == 0x0f)
      two_bytes(&code);
   else
      one_byte(&code);
   *size = prefix + code.size;
   return code.effect;
}

int dead_flags_at(uint64_t ip, uint64_t from)
{
   uint64_t page = from & ~(uint64_t)(PAGE - 1);
   enum flag_effect effect = FLAGS_KEPT;
   unsigned i, size;

   for (i = 0; i < LOOKED_AT && effect == FLAGS_KEPT; i++, ip += size) {
      if (ip < page || ip + LONGEST > page + PAGE)
         return 0;
      effect = flag_effect_of((const uint8_t *)ip, &size);
   }
   return effect == FLAGS_SET;
}
