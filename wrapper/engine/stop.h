/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Signals that stop the program, as they do without the engine: see vg_stop.c. */
#ifndef PTSOFT_STOP_H
#define PTSOFT_STOP_H

#include "vg_core.h"

/* Before the program's first instruction: from here on the kernel acts on them where the program leaves it to. */
void stop_init(void);

/* The signals that are left to the kernel, as a mask: bit n - 1 is signal n. */
ULong stop_left(void);

/* A signal was taken that was pending. True: it stops the program by default, and did; the program goes on now. */
Bool stop_instead(Int signal);

#endif
