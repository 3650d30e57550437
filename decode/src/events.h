/* SPDX-License-Identifier: MIT */
/* libipt's events as rows. */
#ifndef PTD_EVENTS_H
#define PTD_EVENTS_H

#include "columns.h"

#include <intel-pt.h>

/* Kind, address, target and detail of `event`; seq, tsc and offset are the caller's to fill. Pure. */
struct ptd_event_row ptd_event_row(const struct pt_event *event);

#endif
