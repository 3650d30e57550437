/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process's files go with it when it becomes another user: they are opened anew for each window and record, and are
 * their owner's alone. Given before the call, by who may still do so, and after it to whoever the process is then. Where it
 * may not give them (it is not root), what it can no longer open is counted as lost.
 */
#ifndef PTSOFT_USER_H
#define PTSOFT_USER_H

#include "vg_core.h"

/* A system call is about to be made. Others than those that change the user are let be. */
void user_changing(UInt number, const UWord *args);

/* It was made, or failed. */
void user_changed(UInt number);

#endif
