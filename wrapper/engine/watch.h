/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Watchpoints under the engine: code that touches a watched range raises SIGTRAP behind the instruction that did, with
 * all registers as they are then, as a processor's debug registers do; but it also says which instruction it was, and
 * whether it read or wrote.
 *
 * libtthread asks for them by a client request (preload/src/watch_format.h). Until then nothing is added to the code;
 * from then on, every access is compared with the span of all ranges, and each block begins with a look at a flag of its
 * thread. Forked children inherit them, exec ends them. Runs under the big lock.
 */
#ifndef PTSOFT_WATCH_H
#define PTSOFT_WATCH_H

#include "format.h"
#include "vg_core.h"

/* Is anything watched? */
Bool watch_active(void);

Bool watch_request(ThreadId tid, UWord *args, UWord *ret);

/* At translation: behind `statement` of the instruction at `ip`, if it touches memory. True: it does. */
Bool watch_statement(IRSB *out, const IRStmt *statement, Addr ip);

/* Before the instruction at `ip`: leave if one before it hit. */
void watch_leave(IRSB *out, Addr ip, Int ip_offset);

/* A signal is about to be delivered. True: it is a hit. False and `fault`: the instruction under way is repeated, so what
 * it touched does not count yet. */
Bool watch_delivers(ThreadId tid, Bool fault);

#endif
