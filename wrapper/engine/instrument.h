/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The code that writes packets, put into each translated block of the program's. */
#ifndef PTSOFT_INSTRUMENT_H
#define PTSOFT_INSTRUMENT_H

#include "vg_core.h"

struct instrument_options {
   Bool compress;   /* returns are compressed: keep the return stack */
   Bool log;        /* log every instruction */
};

void instrument_init(struct instrument_options options);

/* Valgrind's instrument callback. */
IRSB *instrument_block(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                       const VexGuestExtents *extents, const VexArchInfo *arch, IRType guest_word, IRType host_word);

#endif
