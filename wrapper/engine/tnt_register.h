/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The pending branches of the running thread live in a register of the processor while generated code runs: a value
 * in memory that every branch changes would make each branch wait for the store of the one before. A second register
 * holds the address of the thread's encoder.
 *
 * VEX knows no such registers. They are taken from those that VEX gives out, generated code names them as places in
 * the guest's state, and what accesses those places is encoded as an access to the register (vg_host.c).
 * `pt_encoder.tnt` has the same value:
 *   - where the C code runs that Valgrind calls (threads, signals, system calls): written there when generated code
 *     is left, read from there when it is entered;
 *   - in functions that generated code calls, and at a fault or a SIGKILL: generated code stores it at the start of
 *     each block and behind each branch in the middle of one.
 * Everything runs under the big lock: one thread runs generated code at a time, and it has the registers.
 *
 * Valgrind counts blocks, so that a thread that runs on and on stops now and then: each block begins with a check.
 * A block that writes a branch checks instead whether the register is full; whoever goes on and on through such
 * blocks fills it.
 */
#ifndef PTSOFT_TNT_REGISTER_H
#define PTSOFT_TNT_REGISTER_H

#include "pt_packet.h"
#include "vg_core.h"

/* The place in the guest's state (8 bytes) that stands for the register. Generated code reads it. A constant written to
   it means one of these changes, and nothing else is ever written. */
Int tnt_register_slot(void);

enum tnt_change {
   TNT_ADD_NOT_TAKEN, TNT_ADD_TAKEN, /* a branch, behind the others */
   TNT_OTHER,                        /* the last one went the other way */
   TNT_EMPTY,
};

enum block_check {
   CHECK_EVENTS,     /* as Valgrind does it: counts one, and leaves at none */
   CHECK_BRANCHES,   /* there is room for a branch behind it; for blocks that write one each time they run to an end */
   CHECK_NOTHING,    /* for blocks that only go on to higher addresses: no loop is made of these alone */
};

/* How the block begins that is being translated. */
void tnt_register_check(enum block_check wanted);

/* Generated code runs for `encoder` from now on. */
void tnt_register_use(struct pt_encoder *encoder);

/* Called by generated code when the register holds as many branches as a packet: writes them. */
void tnt_register_flush(struct pt_encoder *encoder);

/* Called by generated code at a return to `ip` that is not the address `entry` it took off the return stack: takes back
   the branch in the register, which is for one that is, and writes a TIP. */
void tnt_register_missed(struct pt_encoder *encoder, ULong ip, ULong entry);

#endif
