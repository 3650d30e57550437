/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of VEX's back end and Valgrind's dispatcher (-Wl,--wrap=…): the register of tnt_register.h, r13.
 *
 * The order in which VEX gives out registers begins with r12 and r13, and a range of it can be left out: these two
 * (the dispatcher uses r12 for itself). The C functions that generated code calls preserve r13.
 */
#include "tnt_register.h"

enum { CLASSES = 9, CLASS_INT64 = 4, REGISTERS = 64, INT64_FIRST = 0, INT64_LAST = 9, INT64_LEFT_OUT = 2 };

/* VEX's table of registers (3.19: RRegUniverse). */
struct universe {
   UInt size, allocatable;
   UInt registers[REGISTERS];
   UInt first[CLASSES], last[CLASSES]; /* of a class, as indexes into the table */
};

extern struct universe *__real_getRRegUniverse_AMD64(void);
extern struct universe *__wrap_getRRegUniverse_AMD64(void);

struct universe *__wrap_getRRegUniverse_AMD64(void)
{
   static struct universe *known;

   if (known == NULL) {
      known = __real_getRRegUniverse_AMD64();
      tl_assert(known->first[CLASS_INT64] == INT64_FIRST && known->last[CLASS_INT64] == INT64_LAST);
      known->first[CLASS_INT64] += INT64_LEFT_OUT;
   }
   return known;
}

/* An access to the slot, REX.W opcode ModRM(rbp + 32 bits), made one to r13. Returns the new size. */
static Int name_register(UChar *code, Int size)
{
   enum { REX = 0, OPCODE = 1, MODRM = 2, OFFSET = 3, OPERAND = 7, REX_W = 0x48, REX_B = 1, R13 = 5, DIRECT = 0xc0 };
   Int offset;

   if (size < OPERAND || (code[REX] & 0xf9) != REX_W || (code[MODRM] & 0xc7) != 0x85)
      return size;
   __builtin_memcpy(&offset, code + OFFSET, sizeof offset);
   if (offset != tnt_register_slot())
      return size;
   switch (code[OPCODE]) {
   case 0x89: case 0x8b: case 0xc7:                                             /* mov */
   case 0x03: case 0x0b: case 0x13: case 0x1b: case 0x23: case 0x2b: case 0x33: case 0x3b: /* add to cmp, from it */
      break;
   case 0xb8: case 0xb9: case 0xba: case 0xbb: case 0xbc: case 0xbd: case 0xbe: case 0xbf:
      return size;                                                              /* a constant that looks like it */
   default:
      tl_assert2(0, "access %02x to the register of branches", code[OPCODE]);
   }
   code[REX] |= REX_B;
   code[MODRM] = (UChar)(DIRECT | (code[MODRM] & 0x38) | R13);
   VG_(memmove)(code + OFFSET, code + OPERAND, (SizeT)(size - OPERAND));
   return size - (OPERAND - OFFSET);
}

extern Int __real_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                                  VexEndness endness, const void *slow, const void *fast, const void *indirect,
                                  const void *assisted);
extern Int __wrap_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                                  VexEndness endness, const void *slow, const void *fast, const void *indirect,
                                  const void *assisted);

Int __wrap_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                           VexEndness endness, const void *slow, const void *fast, const void *indirect,
                           const void *assisted)
{
   return name_register(code, __real_emit_AMD64Instr(counts, code, room, instruction, mode64, endness, slow, fast,
                                                     indirect, assisted));
}

/* Read by the code below. */
__attribute__((used)) static struct pt_encoder *tnt_encoder;
__attribute__((used)) static Addr tnt_entry;

_Static_assert(offsetof(struct pt_encoder, tnt) == 0, "found without an offset below");

void tnt_register_use(struct pt_encoder *encoder)
{
   tnt_encoder = encoder;
}

extern void ptsoft_enter(void);
extern void __real_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry);
extern void __wrap_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry);

/* The dispatcher saves C's registers, and jumps to what it is given: the register is loaded there. */
void __wrap_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry)
{
   tnt_entry = entry;
   __real_vgPlain_disp_run_translations(result, guest, (Addr)ptsoft_enter);
}

__asm__(
   ".text\n"
   "ptsoft_enter:\n"
   "   mov   tnt_encoder, %r11\n"
   "   mov   (%r11), %r13\n"
   "   jmp   *tnt_entry\n");

/* The ways out of generated code: no register but r13 and those that each way defines is in use there, r11 in none.
   A way that comes back (an indirect jump) does so with the register as it was. */
#define WAY_OUT(name)                       \
   __asm__(                                 \
      ".text\n"                             \
      ".globl __wrap_vgPlain_" name "\n"    \
      "__wrap_vgPlain_" name ":\n"          \
      "   mov   tnt_encoder, %r11\n"        \
      "   mov   %r13, (%r11)\n"             \
      "   jmp   __real_vgPlain_" name "\n")

WAY_OUT("disp_cp_chain_me_to_slowEP");
WAY_OUT("disp_cp_chain_me_to_fastEP");
WAY_OUT("disp_cp_xindir");
WAY_OUT("disp_cp_xassisted");
WAY_OUT("disp_cp_evcheck_fail");
