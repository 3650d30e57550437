/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See insn_class.h. Reads no byte outside [bytes, bytes + size). */
#include "insn_class.h"

static int is_prefix(uint8_t byte)
{
   switch (byte) {
   case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:                      /* size, lock, rep, bnd, notrack */
   case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:           /* segments, hints */
      return 1;
   default:
      return (byte & 0xf0) == 0x40;                                            /* REX */
   }
}

static int64_t displacement(const uint8_t *bytes, unsigned size)
{
   int32_t wide;

   if (size == 1)
      return (int8_t)bytes[0];
   __builtin_memcpy(&wide, bytes, sizeof wide);
   return wide;
}

/* An instruction whose last `field` bytes say where it goes. */
static struct insn relative(enum insn_class class, const uint8_t *bytes, unsigned size, unsigned field, uint64_t ip)
{
   struct insn insn = { class, 1, 0 };

   insn.target = ip + size + (uint64_t)displacement(bytes + size - field, field);
   return insn;
}

static struct insn simple(enum insn_class class)
{
   return (struct insn){ class, class != INSN_OTHER, 0 };
}

static struct insn two_byte(const uint8_t *bytes, unsigned size, unsigned at, uint64_t ip)
{
   if (at >= size)
      return simple(INSN_OTHER);
   if ((bytes[at] & 0xf0) == 0x80 && size - at >= 5)
      return relative(INSN_COND_JUMP, bytes, size, 4, ip);
   switch (bytes[at]) {
   case 0x05: case 0x07: case 0x34: case 0x35:  /* syscall, sysret, sysenter, sysexit */
      return simple(INSN_FAR);
   default:
      return simple(INSN_OTHER);
   }
}

static struct insn group_ff(uint8_t modrm)
{
   switch (modrm >> 3 & 7) {
   case 2:
      return simple(INSN_IND_CALL);
   case 4:
      return simple(INSN_IND_JUMP);
   case 3: case 5:                              /* far call, far jump */
      return simple(INSN_FAR);
   default:
      return simple(INSN_OTHER);
   }
}

struct insn insn_classify(const uint8_t *bytes, unsigned size, uint64_t ip)
{
   unsigned at = 0;
   uint8_t opcode;

   while (at < size && is_prefix(bytes[at]))
      at++;
   if (at >= size)
      return simple(INSN_OTHER);
   opcode = bytes[at++];
   if (opcode == 0x0f)
      return two_byte(bytes, size, at, ip);
   if (((opcode & 0xf0) == 0x70 || (opcode >= 0xe0 && opcode <= 0xe3)) && at < size)
      return relative(INSN_COND_JUMP, bytes, size, 1, ip);
   switch (opcode) {
   case 0xe8:
      return size - at >= 4 ? relative(INSN_CALL, bytes, size, 4, ip) : simple(INSN_OTHER);
   case 0xe9: case 0xeb: {
      struct insn jump = { INSN_OTHER, 1, 0 };

      return jump;
   }
   case 0xc2: case 0xc3:
      return simple(INSN_RETURN);
   case 0xca: case 0xcb: case 0xcc: case 0xcd: case 0xce: case 0xcf: /* far return, int3, int n, into, iret */
   case 0x9a: case 0xea: case 0xf1:                                  /* far call, far jump, int1 */
      return simple(INSN_FAR);
   case 0xff:
      return at < size ? group_ff(bytes[at]) : simple(INSN_OTHER);
   default:
      return simple(INSN_OTHER);
   }
}
