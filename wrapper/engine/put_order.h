/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Register writes of an instruction, put where a fault finds the registers as they were before it.
 *
 * VEX writes some registers before the memory access of the same instruction: `rep movs` counts rcx down first,
 * `push` and `call` move rsp first. When such an access faults, and a handler repairs the cause and returns, the
 * instruction runs again with the changed register: a string move loses an element, a push goes 8 bytes too low.
 * A processor changes no register then. So register writes are held back behind the last access to memory of their
 * instruction, as far as nothing in between reads them.
 *
 * A scalar SSE load clears the register and then writes its low lane; the two are made one write. A 16-byte read
 * right behind two smaller writes stalls store forwarding: as one, floating-point code runs twice as fast.
 */
#ifndef PTSOFT_PUT_ORDER_H
#define PTSOFT_PUT_ORDER_H

#include "vg_core.h"

enum { PUTS_HELD = 24 };

struct put_order {
   IRSB *out;
   Int last_access;           /* index of the instruction's last access to memory; -1 none */
   UInt held;
   IRStmt *puts[PUTS_HELD];
};

void put_order_init(struct put_order *order, IRSB *out);

/* An instruction begins: its statements are in->stmts[first] to the next IMark or the end. */
void put_order_instruction(struct put_order *order, const IRSB *in, Int first);

/* Emit statement `at` of the instruction, or hold it. */
void put_order_emit(struct put_order *order, IRStmt *statement, Int at);

/* Emit what is held. */
void put_order_flush(struct put_order *order);

#endif
