/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes of a part of a register, made writes of the whole.
 *
 * The program's registers are memory to generated code, and a processor that loads 8 bytes of which some come from
 * one store and some from another waits until both are in its cache: a dozen cycles, where the program's own
 * processor spends one. `setb %al` behind `xor %eax, %eax` is the common case.
 */
#ifndef PTSOFT_WHOLE_REGISTERS_H
#define PTSOFT_WHOLE_REGISTERS_H

#include "vg_core.h"

/* A block (flat, before VEX's optimiser) in which the low 8 or 16 bits of a general register are written only as part
   of all 64. */
IRSB *whole_registers(const IRSB *in);

#endif
