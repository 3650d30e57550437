// SPDX-License-Identifier: GPL-2.0-or-later
/* Tells branches of 64-bit code by their first bytes (SDM vol. 2). Nothing is kept; any bytes are safe. */
#include <linux/kernel.h>
#include <linux/string.h>

#include "cpu.h"

static bool is_prefix(u8 byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: /* segments; notrack */
	case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:
		return true;
	}
	return (byte & 0xf0) == 0x40; /* REX */
}

/* Bytes of ModRM, SIB and displacement. */
static int operand_length(const u8 *at)
{
	u8 mod = at[0] >> 6, rm = at[0] & 7;
	int length = 1;

	if (mod == 3)
		return length;
	if (rm == 4) {
		length++;
		if (mod == 0 && (at[1] & 7) == 5)
			length += 4;
	} else if (rm == 5 && mod == 0) {
		length += 4;
	}
	return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static bool is_string(u8 opcode)
{
	return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) ||
	       (opcode >= 0x6c && opcode <= 0x6f);
}

static enum ptlab_branch group_5(const u8 *code, int at, int *length)
{
	*length = at + 1 + operand_length(code + at + 1);
	switch (code[at + 1] >> 3 & 7) {
	case 2: return PTLAB_CALL_INDIRECT;
	case 4: return PTLAB_JMP_INDIRECT;
	case 3: case 5: return PTLAB_FAR;
	}
	return PTLAB_OTHER;
}

/* `code` has PTLAB_CODE bytes. Sets the length of branches; of other instructions it is 0. */
enum ptlab_branch ptlab_classify(const u8 *code, int *length)
{
	bool repeated = false;
	int at = 0;
	u8 opcode;

	*length = 0;
	for (; at < 14 && is_prefix(code[at]); at++)
		repeated |= code[at] == 0xf2 || code[at] == 0xf3;
	opcode = code[at];
	if (repeated && is_string(opcode))
		return PTLAB_REPEATED;
	if ((opcode & 0xf0) == 0x70 || (opcode >= 0xe0 && opcode <= 0xe3)) {
		*length = at + 2;
		return PTLAB_JCC;
	}
	switch (opcode) {
	case 0x0f:
		if ((code[at + 1] & 0xf0) == 0x80) {
			*length = at + 6;
			return PTLAB_JCC;
		}
		if (code[at + 1] == 0x05 || code[at + 1] == 0x34) {
			*length = at + 2;
			return PTLAB_FAR;
		}
		return PTLAB_OTHER;
	case 0xe8: *length = at + 5; return PTLAB_CALL;
	case 0xe9: *length = at + 5; return PTLAB_JMP;
	case 0xeb: *length = at + 2; return PTLAB_JMP;
	case 0xc2: *length = at + 3; return PTLAB_RET;
	case 0xc3: *length = at + 1; return PTLAB_RET;
	case 0xca: *length = at + 3; return PTLAB_FAR;
	case 0xcd: *length = at + 2; return PTLAB_FAR;
	case 0xcb: case 0xcc: case 0xcf: *length = at + 1; return PTLAB_FAR;
	case 0xff: return group_5(code, at, length);
	}
	return PTLAB_OTHER;
}
