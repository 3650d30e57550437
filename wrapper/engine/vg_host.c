/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of VEX's back end and Valgrind's dispatcher (-Wl,--wrap=…): the registers of tnt_register.h, r12
 * and r13, and the check with which each block begins.
 *
 * The order in which VEX gives out registers begins with r12 and r13, and a range of it can be left out: these two.
 * The C functions that generated code calls preserve both.
 */
#include "masks.h"
#include "stream.h"
#include "tnt_register.h"
#include "libvex_guest_amd64.h"

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

/* An instruction of VEX's that accesses the guest's state. */
enum { REX = 0, OPCODE = 1, MODRM = 2, OFFSET = 3, OPERAND = 7, REX_W = 0x48, REX_B = 1, R12 = 4, R13 = 5, DIRECT = 0xc0 };

/* The slot that an instruction accesses, REX.W opcode ModRM(rbp + 32 bits); 0 none. */
static Int slot_of(const UChar *code, Int size)
{
   Int offset;

   if (size < OPERAND || (code[REX] & 0xf9) != REX_W || (code[MODRM] & 0xc7) != 0x85)
      return 0;
   __builtin_memcpy(&offset, code + OFFSET, sizeof offset);
   if (offset != tnt_register_slot() && offset != (Int)stream_slot())
      return 0;
   return (code[OPCODE] & 0xf8) == 0xb8 ? 0 : offset; /* a constant that looks like it */
}

/* A constant written to the slot of branches: what it stands for. Returns the new size. */
static Int change_register(UChar *code)
{
   static const struct { UChar size, code[7]; } changes[] = {
      [TNT_ADD_NOT_TAKEN] = { 3, { 0x4d, 0x01, 0xed } },             /* add %r13,%r13 */
      [TNT_ADD_TAKEN]     = { 5, { 0x4f, 0x8d, 0x6c, 0x2d, 0x01 } }, /* lea 1(%r13,%r13),%r13 */
      [TNT_OTHER]         = { 4, { 0x49, 0x83, 0xf5, 0x01 } },       /* xor $1,%r13 */
      [TNT_EMPTY]         = { 6, { 0x41, 0xbd, 0x00, 0x00, 0x01 } }, /* mov $PT_TNT_EMPTY,%r13d */
   };
   UInt change;

   __builtin_memcpy(&change, code + OPERAND, sizeof change);
   tl_assert2(change < sizeof changes / sizeof changes[0], "change %u of the register of branches", change);
   VG_(memcpy)(code, changes[change].code, changes[change].size);
   return changes[change].size;
}

/* An access to a slot, made one to its register. Returns the new size. */
static Int name_register(UChar *code, Int size)
{
   Int slot = slot_of(code, size);

   switch (slot == 0 ? 0 : code[OPCODE]) {
   case 0:
      return size;
   case 0xc7:                                                                   /* mov, a constant to it */
      tl_assert2(slot == tnt_register_slot(), "generated code changes its encoder");
      return change_register(code);
   case 0x8b:                                                                   /* mov */
   case 0x03: case 0x0b: case 0x13: case 0x1b: case 0x23: case 0x2b: case 0x33: case 0x3b: /* add to cmp, from it */
      break;
   default:
      tl_assert2(0, "access %02x to a register of the engine", code[OPCODE]);
   }
   code[REX] |= REX_B;
   code[MODRM] = (UChar)(DIRECT | (code[MODRM] & 0x38) | (slot == tnt_register_slot() ? R13 : R12));
   VG_(memmove)(code + OFFSET, code + OPERAND, (SizeT)(size - OPERAND));
   return size - (OPERAND - OFFSET);
}

enum { AT_RIP = offsetof(VexGuestAMD64State, guest_RIP) };

/* An exit to a known place stores rip by way of r11, maybe behind a jump over it all: one instruction does. */
static Int shorten_exit(UChar *code, Int size)
{
   static const UChar constant_to_r11[] = { 0x49, 0xc7, 0xc3 }, r11_to_rip[] = { 0x4c, 0x89, 0x9d, AT_RIP, 0, 0, 0 },
                      constant_to_rip[] = { 0x48, 0xc7, 0x85, AT_RIP, 0, 0, 0 };
   enum { JUMP = 2, CONSTANT = 4, FIRST = sizeof constant_to_r11 + CONSTANT, BOTH = FIRST + sizeof r11_to_rip,
          ONE = sizeof constant_to_rip + CONSTANT };
   Int at = size > JUMP + BOTH && (code[0] & 0xf0) == 0x70 && code[1] == size - JUMP ? JUMP : 0;
   UChar value[CONSTANT];

   if (size < at + BOTH || VG_(memcmp)(code + at, constant_to_r11, sizeof constant_to_r11) != 0 ||
       VG_(memcmp)(code + at + FIRST, r11_to_rip, sizeof r11_to_rip) != 0)
      return size;
   VG_(memcpy)(value, code + at + sizeof constant_to_r11, CONSTANT);
   VG_(memcpy)(code + at, constant_to_rip, sizeof constant_to_rip);
   VG_(memcpy)(code + at + sizeof constant_to_rip, value, CONSTANT);
   VG_(memmove)(code + at + ONE, code + at + BOTH, (SizeT)(size - at - BOTH));
   if (at == JUMP)
      code[1] -= BOTH - ONE;
   return size - (BOTH - ONE);
}

static enum block_check block_check = CHECK_EVENTS;

void tnt_register_check(enum block_check wanted)
{
   block_check = wanted;
}

/* The check at a block's start (see tnt_register.h), in place of VEX's own. Returns the new size; there is room. */
static Int replace_check(UChar *code, Int size)
{
   static const UChar vex[] = { 0xff, 0x4d, 0x08,           /* decl 8(%rbp): the events left */
                                0x79, 0x03,                 /* jns  behind this */
                                0xff, 0x65, 0x00 },         /* jmp  *0(%rbp) */
                      store[] = { 0x4d, 0x89, 0x2c, 0x24 }, /* mov  %r13,(%r12) */
                      full[] = { 0x4d, 0x85, 0xed },        /* test %r13,%r13 */
                      call[] = { 0xff, 0x55, 0x00 };        /* call *0(%rbp) */

   if (size != sizeof vex || VG_(memcmp)(code, vex, sizeof vex) != 0)
      return size;
   VG_(memcpy)(code, store, sizeof store);
   if (block_check == CHECK_NOTHING)
      return sizeof store;
   VG_(memcpy)(code + sizeof store, vex, sizeof vex);
   VG_(memcpy)(code + sizeof store + sizeof vex - sizeof call, call, sizeof call);
   if (block_check == CHECK_BRANCHES)
      VG_(memcpy)(code + sizeof store, full, sizeof full);
   return sizeof store + sizeof vex;
}

extern Int __real_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                                  VexEndness endness, const void *slow, const void *fast, const void *indirect,
                                  const void *assisted);
extern Int __wrap_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                                  VexEndness endness, const void *slow, const void *fast, const void *indirect,
                                  const void *assisted);

/* Every exit goes to the target's check, those ahead as well. */
Int __wrap_emit_AMD64Instr(Bool *counts, UChar *code, Int room, const void *instruction, Bool mode64,
                           VexEndness endness, const void *slow, const void *fast, const void *indirect,
                           const void *assisted)
{
   Int size = __real_emit_AMD64Instr(counts, code, room, instruction, mode64, endness, slow, slow, indirect, assisted);

   (void)fast;
   return replace_check(code, shorten_exit(code, name_register(code, size)));
}

/* Read by the code below. */
__attribute__((used)) static struct pt_encoder *tnt_encoder;
__attribute__((used)) static Addr tnt_entry;

_Static_assert(offsetof(struct pt_encoder, tnt) == 0, "found without an offset below");
_Static_assert(AT_RIP == 184 && offsetof(VexGuestAMD64State, host_EvC_COUNTER) == 8, "numbers below");
_Static_assert(PT_TNT_EMPTY == 1 << 16, "a number below");

void tnt_register_use(struct pt_encoder *encoder)
{
   tnt_encoder = encoder;
}

extern void ptsoft_enter(void);
extern void __real_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry);
extern void __wrap_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry);

/* The dispatcher saves C's registers, and jumps to what it is given: the registers are loaded there. */
void __wrap_vgPlain_disp_run_translations(HWord *result, volatile void *guest, Addr entry)
{
   if (masks_missing)
      masks_complete(VG_(get_running_tid)());
   tnt_entry = entry;
   __real_vgPlain_disp_run_translations(result, guest, (Addr)ptsoft_enter);
}

__asm__(
   ".text\n"
   "ptsoft_enter:\n"
   "   mov   tnt_encoder, %r12\n"
   "   mov   (%r12), %r13\n"
   "   jmp   *tnt_entry\n");

/* The ways out of generated code: no register but r12, r13, rbp and those that each way defines is in use there. */
#define WAY_OUT(name)                       \
   __asm__(                                 \
      ".text\n"                             \
      ".globl __wrap_vgPlain_" name "\n"    \
      "__wrap_vgPlain_" name ":\n"          \
      "   mov   %r13, (%r12)\n"             \
      "   jmp   __real_vgPlain_" name "\n")

WAY_OUT("disp_cp_chain_me_to_slowEP");
WAY_OUT("disp_cp_chain_me_to_fastEP");
WAY_OUT("disp_cp_xassisted");

/*
 * The way to the block at rip, when it is in Valgrind's cache of these: 8192 sets of four pairs (rip, block), the
 * one used last first. Valgrind's own changes r12 and counts; it is gone to when the cache has no such block.
 */
__asm__(
   ".text\n"
   ".globl __wrap_vgPlain_disp_cp_xindir\n"
   ".balign 16\n"
   "__wrap_vgPlain_disp_cp_xindir:\n"
   "   mov   184(%rbp), %rax\n"
   "   mov   %rax, %rcx\n"
   "   shr   $13, %rcx\n"
   "   xor   %rax, %rcx\n"
   "   and   $0x1fff, %ecx\n"
   "   shl   $6, %ecx\n"
   "   cmp   %rax, vgPlain_tt_fast(%rcx)\n"
   "   jne   1f\n"
   "   jmp   *vgPlain_tt_fast+8(%rcx)\n"
   "1: lea   vgPlain_tt_fast(%rcx), %rsi\n"      /* the set */
   "   lea   48(%rsi), %rdi\n"                   /* its last pair */
   "2: add   $16, %rsi\n"
   "   cmp   %rax, (%rsi)\n"
   "   je    3f\n"
   "   cmp   %rdi, %rsi\n"
   "   jne   2b\n"
   "   mov   %r13, (%r12)\n"
   "   jmp   __real_vgPlain_disp_cp_xindir\n"
   "3: movups (%rsi), %xmm0\n"                   /* changes places with the pair before it */
   "   movups -16(%rsi), %xmm1\n"
   "   movups %xmm0, -16(%rsi)\n"
   "   movups %xmm1, (%rsi)\n"
   "   jmp   *-8(%rsi)\n");

/* A block's check failed: the events are used up, or the register (which is stored) is full. That is written, counts as
   so many events as it has branches (47), and the block goes on. */
__asm__(
   ".text\n"
   ".globl __wrap_vgPlain_disp_cp_evcheck_fail\n"
   "__wrap_vgPlain_disp_cp_evcheck_fail:\n"
   "   test  %r13, %r13\n"
   "   jns   1f\n"
   "   mov   %r12, %rdi\n"
   "   sub   $8, %rsp\n"                         /* C's alignment */
   "   call  pt_tnt_flush\n"
   "   add   $8, %rsp\n"
   "   mov   $0x10000, %r13d\n"
   "   subl  $47, 8(%rbp)\n"
   "   js    2f\n"
   "   ret\n"
   "2: movl  $-1, 8(%rbp)\n"
   "1: add   $8, %rsp\n"
   "   jmp   __real_vgPlain_disp_cp_evcheck_fail\n");
