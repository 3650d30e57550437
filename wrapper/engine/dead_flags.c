/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See dead_flags.h. Knows the common instructions on registers (SDM vol. 2, appendix A); all others may do anything. */
#include "dead_flags.h"

enum { PAGE = 4096, LOOKED_AT = 8, /* instructions */ LONGEST = 15 };

enum effect { ANYTHING, KEEPS, SETS };

struct code {
   const UChar *at;     /* the opcode, behind the prefix */
   Bool wide;           /* REX.W */
   enum effect effect;
   UInt size;           /* from `at` on */
};

static Bool on_registers(UChar modrm)
{
   return modrm >= 0xc0;
}

static UInt field(UChar modrm)
{
   return modrm >> 3 & 7;
}

/* Bytes of a ModRM, what comes with it included. */
static UInt operand_size(const UChar *modrm)
{
   UInt mod = modrm[0] >> 6, size = (modrm[0] & 7) == 4 && mod != 3 ? 2 : 1;
   UInt base = size == 2 ? modrm[1] & 7 : modrm[0] & 7;

   if (mod == 1)
      return size + 1;
   return size + (mod == 2 || (mod == 0 && base == 5) ? 4 : 0);
}

static void set(struct code *code, enum effect effect, UInt size)
{
   code->effect = effect;
   code->size = size;
}

/* ADD OR ADC SBB AND SUB XOR CMP: two of them read the carry. */
static enum effect of_arithmetic(UInt operation)
{
   return operation == 2 || operation == 3 ? ANYTHING : SETS;
}

static void two_bytes(struct code *code)
{
   const UChar *at = code->at;

   switch (at[1]) {
   case 0x1f:                                           /* nop */
      set(code, KEEPS, 2 + operand_size(at + 2));
      break;
   case 0xb6: case 0xb7: case 0xbe: case 0xbf:          /* movzx, movsx */
      set(code, on_registers(at[2]) ? KEEPS : ANYTHING, 3);
      break;
   case 0xaf:                                           /* imul */
      set(code, on_registers(at[2]) ? SETS : ANYTHING, 3);
      break;
   }
}

/* Instructions with a ModRM that names registers. */
static void with_registers(struct code *code)
{
   const UChar *at = code->at;

   switch (at[0]) {
   case 0x63: case 0x88: case 0x89: case 0x8a: case 0x8b:  /* movsxd, mov */
      set(code, KEEPS, 2);
      break;
   case 0xc6: case 0xc7:                                   /* mov, of a constant */
      set(code, field(at[1]) == 0 ? KEEPS : ANYTHING, at[0] == 0xc6 ? 3 : 6);
      break;
   case 0x84: case 0x85:                                   /* test */
      set(code, SETS, 2);
      break;
   case 0x80: case 0x83:
      set(code, of_arithmetic(field(at[1])), 3);
      break;
   case 0x81:
      set(code, of_arithmetic(field(at[1])), 6);
      break;
   case 0xf6: case 0xf7:                                   /* test, not, neg */
      if (field(at[1]) == 0)
         set(code, SETS, at[0] == 0xf6 ? 3 : 6);
      else if (field(at[1]) == 2 || field(at[1]) == 3)
         set(code, field(at[1]) == 2 ? KEEPS : SETS, 2);
      break;
   default:
      if (at[0] < 0x40 && (at[0] & 7) < 4)
         set(code, of_arithmetic(field(at[0])), 2);
   }
}

static void one_byte(struct code *code)
{
   const UChar *at = code->at;

   if (at[0] == 0x90)                                      /* nop; with REX.B an exchange of registers */
      set(code, KEEPS, 1);
   else if (at[0] >= 0xb0 && at[0] < 0xb8)                 /* mov, of a constant */
      set(code, KEEPS, 2);
   else if (at[0] >= 0xb8 && at[0] < 0xc0)
      set(code, KEEPS, code->wide ? 9 : 5);
   else if (at[0] == 0x8d && !on_registers(at[1]))         /* lea */
      set(code, KEEPS, 1 + operand_size(at + 1));
   else if (at[0] == 0xa8 || at[0] == 0xa9)                /* test */
      set(code, SETS, at[0] == 0xa8 ? 2 : 5);
   else if (at[0] < 0x40 && (at[0] & 7) == 4)
      set(code, of_arithmetic(field(at[0])), 2);
   else if (at[0] < 0x40 && (at[0] & 7) == 5)
      set(code, of_arithmetic(field(at[0])), 5);
   else if (on_registers(at[1]))
      with_registers(code);
}

/* The instruction at `bytes`, of which LONGEST can be read: its effect; its size in *size unless that is ANYTHING. */
static enum effect effect_of(const UChar *bytes, UInt *size)
{
   static const UChar endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
   UInt prefix = (bytes[0] & 0xf0) == 0x40 ? 1 : 0;
   struct code code = { bytes + prefix, (bytes[0] & 0xf8) == 0x48, ANYTHING, 0 };

   if (VG_(memcmp)(bytes, endbr64, sizeof endbr64) == 0)
      set(&code, KEEPS, sizeof endbr64);
   else if (code.at[0] == 0x0f)
      two_bytes(&code);
   else
      one_byte(&code);
   *size = prefix + code.size;
   return code.effect;
}

Bool dead_flags_at(Addr ip, Addr from)
{
   Addr page = from & ~(Addr)(PAGE - 1);
   enum effect effect = KEEPS;
   UInt i, size;

   for (i = 0; i < LOOKED_AT && effect == KEEPS; i++, ip += size) {
      if (ip < page || ip + LONGEST > page + PAGE)
         return False;
      effect = effect_of((const UChar *)ip, &size);
   }
   return effect == SETS;
}
