/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program of the recording that debugs or traces others with ptrace (gdb, strace) would see the engine that runs them: its
 * registers, its code, its system calls. What such a one has traced before an exec runs without the engine from there.
 */
#ifndef PTSOFT_TRACER_H
#define PTSOFT_TRACER_H

#include "vg_core.h"

/* Does a process that the engine runs trace this thread? A tracer from outside, who may see the engine, is none. */
Bool tracer_is_simulated(void);

#endif
