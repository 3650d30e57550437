/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Register writes of an instruction, put where a fault finds the registers as they were before it.
 *
 * VEX writes some registers before the memory access of the same instruction: `rep movs` counts rcx down first,
 * `push` and `call` move rsp first. When such an access faults, and a handler repairs the cause and returns, the
 * instruction runs again with the changed register: a string move loses an element, a push goes 8 bytes too low.
 * A processor changes no register then. So register writes are held back behind the last access to memory of their
 * instruction, as far as nothing in between reads them. This is done before VEX's optimiser runs, which keeps all
 * registers right at every access as long as it finds them right.
 *
 * A scalar SSE load clears the register and then writes its low lane; the two are made one write. A 16-byte read
 * right behind two smaller writes stalls store forwarding: as one, floating-point code runs twice as fast.
 */
#ifndef PTSOFT_PUT_ORDER_H
#define PTSOFT_PUT_ORDER_H

#include "vg_core.h"

/* A copy of a flat block, not optimised yet, with its register writes in that order. */
IRSB *put_order(const IRSB *in);

#endif
