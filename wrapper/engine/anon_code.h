/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Code that no file holds, or not reliably: its bytes are stored as they are when they are translated, which is
 * before they run, and again when they changed. Only bytes not stored yet are stored.
 */
#ifndef PTSOFT_ANON_CODE_H
#define PTSOFT_ANON_CODE_H

#include "vg_core.h"

/* [addr, addr + size) is being translated: `bytes` are its bytes (at `addr` itself, except for redirected code). */
void anon_code_translated(Addr addr, const UChar *bytes, SizeT size);

/* The mapping went away. True: there was stored code in it. */
Bool anon_code_gone(Addr addr, SizeT size);

/* In a fork child: store all code that is still there again, in the child's own file. */
void anon_code_forked(void);

#endif
