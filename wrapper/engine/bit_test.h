/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bt, bts, btr and btc of a register, without the program's stack.
 *
 * VEX moves rsp 288 bytes down, stores the register there, works on it in memory, and moves rsp back. A processor
 * touches no memory: the access must not fault (the stack may end just there, or be protected), and no handler may
 * find rsp changed. So the value goes to memory of the engine's instead, and rsp stays as it is.
 */
#ifndef PTSOFT_BIT_TEST_H
#define PTSOFT_BIT_TEST_H

#include "vg_core.h"

/* Inside such an instruction? For one block, its statements in order. */
struct bit_test {
   Bool possible;
   IRExpr *rsp;    /* what rsp was; NULL: not moved (yet) */
   IRTemp place;   /* where VEX thinks the value is */
};

/* What a flat statement becomes: itself, another, or NULL for nothing. Runs under the big lock. */
IRStmt *bit_test_statement(struct bit_test *test, IRStmt *statement);

#endif
