/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which threads can have signals queued: see vg_queues.c. */
#ifndef PTSOFT_QUEUES_H
#define PTSOFT_QUEUES_H

#include "vg_core.h"

/* A thread is about to begin. */
void queues_thread(ThreadId tid);

#endif
