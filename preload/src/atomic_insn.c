/* SPDX-License-Identifier: MIT */
/* Atomic instructions; atomic_insn.h says what is guaranteed. Encoding: Intel SDM vol. 2, 2.1, lock and xchg. */
#include "atomic_insn.h"

#include <string.h>

enum {
	LONGEST = 15, LOCK = 0xf0, SHORT = 0x66, TWO_BYTES = 0x0f, XCHG_BYTE = 0x86, XCHG = 0x87, REGISTER = 0xc0,
	ADDRESSING = 0xc7, RELATIVE = 0x05, /* of ModRM: to the next instruction */
	NO = -1,
};

static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: /* segments */
	case 0x66: case 0x67: case 0xf2: case 0xf3:
		return true;
	default:
		return (byte & 0xf0) == 0x40; /* REX */
	}
}

bool ptw_insn_is_atomic(const uint8_t *code)
{
	for (unsigned i = 0; i < LONGEST - 1; i++) {
		if (code[i] == LOCK)
			return true;
		if (code[i] == XCHG_BYTE || code[i] == XCHG)
			return (code[i + 1] & REGISTER) != REGISTER;
		if (!is_prefix(code[i]))
			return false;
	}
	return false;
}

/* Bytes of the immediate operand of an instruction that may be locked, or NO: there is no such instruction. `digit`: the
 * middle bits of its ModRM. */
static int immediate_of(uint8_t opcode, unsigned digit, bool is_short)
{
	switch (opcode) {
	case 0x00: case 0x01: case 0x08: case 0x09: case 0x10: case 0x11: case 0x18: case 0x19: /* add or adc sbb */
	case 0x20: case 0x21: case 0x28: case 0x29: case 0x30: case 0x31:                       /* and sub xor */
	case XCHG_BYTE: case XCHG:
		return 0;
	case 0x80: case 0x83:
		return digit != 7 ? 1 : NO;
	case 0x81:
		return digit == 7 ? NO : is_short ? 2 : 4;
	case 0xf6: case 0xf7:
		return digit == 2 || digit == 3 ? 0 : NO; /* not neg */
	case 0xfe: case 0xff:
		return digit < 2 ? 0 : NO; /* inc dec */
	default:
		return NO;
	}
}

/* The same for those that begin with 0f. */
static int immediate_of_two_bytes(uint8_t opcode, unsigned digit)
{
	switch (opcode) {
	case 0xab: case 0xb3: case 0xbb: case 0xb0: case 0xb1: case 0xc0: case 0xc1: /* bts btr btc cmpxchg xadd */
		return 0;
	case 0xba:
		return digit >= 5 ? 1 : NO;
	case 0xc7:
		return digit == 1 ? 0 : NO; /* cmpxchg8b cmpxchg16b */
	default:
		return NO;
	}
}

uint64_t ptw_insn_atomic_target(const uint8_t *code, const uint8_t *start, const uint8_t *end)
{
	const uint8_t *at = code;
	bool locked = *at == LOCK, is_short = at > start && at[-1] == SHORT;
	int32_t distance;
	at += locked;
	for (; locked && at < end && is_prefix(*at); at++)
		is_short |= *at == SHORT;
	bool two_bytes = locked && at < end && *at == TWO_BYTES;
	at += two_bytes;
	if (end - at < 2 + (long)sizeof distance || (at[1] & ADDRESSING) != RELATIVE)
		return 0;
	unsigned digit = at[1] >> 3 & 7;
	int immediate = two_bytes ? immediate_of_two_bytes(at[0], digit) : immediate_of(at[0], digit, is_short);
	if (immediate == NO || (!locked && at[0] != XCHG && at[0] != XCHG_BYTE))
		return 0;
	memcpy(&distance, at + 2, sizeof distance);
	return (uint64_t)(at + 2 + sizeof distance + immediate) + (uint64_t)(int64_t)distance;
}
