/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The pending branches of the running thread live in a register of the processor while generated code runs: a value
 * in memory that every branch changes would make each branch wait for the store of the one before.
 *
 * VEX knows no such register. It is taken from those that VEX gives out, generated code names it as a place in the
 * guest's state that is nothing else's, and what accesses that place is encoded as an access to the register
 * (vg_host.c). `pt_encoder.tnt` has the same value:
 *   - where the C code runs that Valgrind calls (threads, signals, system calls): written there when generated code
 *     is left, read from there when it is entered;
 *   - in functions that generated code calls, and at a fault or a SIGKILL: generated code stores it at the start of
 *     each block and behind each branch in the middle of one.
 * Everything runs under the big lock: one thread runs generated code at a time, and it has the register.
 */
#ifndef PTSOFT_TNT_REGISTER_H
#define PTSOFT_TNT_REGISTER_H

#include "pt_packet.h"
#include "vg_core.h"

/* The place in the guest's state (8 bytes) that stands for the register. */
Int tnt_register_slot(void);

/* Generated code runs for `encoder` from now on. */
void tnt_register_use(struct pt_encoder *encoder);

/* Called by generated code when the register holds as many branches as a packet: writes them. */
void tnt_register_flush(struct pt_encoder *encoder);

#endif
