/* SPDX-License-Identifier: MIT */
/* Instructions that change memory atomically: with a LOCK prefix, or xchg with memory. Signal-safe. */
#ifndef PTW_ATOMIC_INSN_H
#define PTW_ATOMIC_INSN_H

#include <stdbool.h>
#include <stdint.h>

/* Is the instruction at `code` one? Reads no byte beyond its ModRM. For an instruction that was just executed: its bytes
 * are there. */
bool ptw_insn_is_atomic(const uint8_t *code) __attribute__((visibility("hidden")));

/* The address that one at `code` (its LOCK prefix, or the opcode of xchg) changes, where that does not depend on
 * registers; 0: it does, or these bytes are no such instruction. Bytes outside [start, end) are not read. */
uint64_t ptw_insn_atomic_target(const uint8_t *code, const uint8_t *start, const uint8_t *end)
	__attribute__((visibility("hidden")));

#endif
