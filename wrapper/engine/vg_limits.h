/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The limit of descriptors, as the program sets and reads it. Valgrind raises the kernel's soft limit to the hard one, for
 * descriptors of its own above those of the program, and keeps the program's soft limit to itself; it refuses to lower the
 * hard one, and a program that is executed finds the raised one. Here both are the program's, also over exec. So are the
 * limit of address space (vg_space.h), and that of the stack, which Valgrind keeps to itself and from programs that are
 * executed.
 */
#ifndef PTSOFT_VG_LIMITS_H
#define PTSOFT_VG_LIMITS_H

#include "vg_core.h"

enum { LIMITS_TEXT = 96 };

/* A program begins; `inherited`: what limits_pass_on wrote before an exec, or NULL. */
void limits_init(const HChar *inherited);

void limits_pass_on(HChar text[LIMITS_TEXT]);

#endif
