/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records about the process beside its packets. See enum ptsoft_record_kind in format.h for their values. */
#ifndef PTSOFT_SIDEBAND_H
#define PTSOFT_SIDEBAND_H

#include "format.h"
#include "vg_core.h"

struct sideband_values {
   ULong value[PTSOFT_VALUES];
};

/* Store one record; counts it as lost when there is no room. `text` may be NULL. */
void sideband_put(enum ptsoft_record_kind kind, struct sideband_values values, const HChar *text);

/* Between these two, records are collected and stored together. */
void sideband_hold(void);
void sideband_release(void);

#endif
