/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signals that stop a program wait in the child of a vfork until it executes another. A child that is stopped before
 * that leaves its parent in the kernel, where no stop reaches it: a shell's Ctrl-Z would stop half of the job, and
 * nobody would be told. Natively that takes a signal within the microseconds before the exec; here the child needs
 * milliseconds for it.
 */
#ifndef PTSOFT_HOLD_H
#define PTSOFT_HOLD_H

#include "vg_core.h"

enum { HOLD_TEXT = 24 };

/* In the child: of a vfork (the parent waits in the kernel), or of another fork. */
void hold_in_child(Bool parent_waits);

/* The mask for a system call: `mask`, and what is held, in `room`. */
const vki_sigset_t *hold_mask(const vki_sigset_t *mask, vki_sigset_t *room);

/* The pending signals to ask for: `set` without what is held, in `room`. */
const vki_sigset_t *hold_back(const vki_sigset_t *set, vki_sigset_t *room);

/* Before an exec that is followed: what the next program is to let go (CLIENT_ENV_HELD). False: nothing. */
Bool hold_pass_on(HChar text[HOLD_TEXT]);

#endif
