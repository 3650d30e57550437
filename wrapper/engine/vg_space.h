/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The limit of address space, as the program sets and reads it. Set for the process it would be the engine's: it ends where
 * it gets no memory, and needs more than the program. So the kernel is not told; what the program maps is held to it here,
 * without what libtthread has mapped for its log. It goes on over exec.
 *
 * Not held to it: stacks that grow, and programs that run untraced.
 */
#ifndef PTSOFT_VG_SPACE_H
#define PTSOFT_VG_SPACE_H

#include "vg_core.h"

struct space_limit { ULong soft, hard; };

extern struct space_limit space_limit;

/* A program begins; `inherited`: what the one before was held to (`soft,hard`), or NULL. */
void space_init(const HChar *inherited);

/* It is held to this from now on. */
void space_set(const struct space_limit *limit);

/* What `space_init` is to be given after an exec: NULL when it is held to nothing of ours. */
const struct space_limit *space_kept(void);

#endif
